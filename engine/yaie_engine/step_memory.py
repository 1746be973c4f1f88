"""What the largest step takes beside weights and KV cache: measured once at load, so that it is left free for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch

from .backends.kernel import KernelAttention
from .device_errors import first_sentence
from .errors import ModelLoadError
from .graphs import DecodeInputs
from .kv_cache import KVCache
from .loaded import LoadedModel
from .memory import all_memory, free_memory, gib
from .plan import ScheduledSequence, StepPlan
from .sequence import Sequence
from .tiers.flat import FlatTier
from .tiers.make import make_tier


class DeviceMemory(Protocol):
    """What an allocator holds of a device, in bytes; its caches count, since nobody else can have them."""

    def release(self) -> None:
        """Give back what is cached and not in use."""
        ...

    def held(self) -> int:
        """Bytes held now; the peak is counted from here on."""
        ...

    def peak(self) -> int:
        """The most bytes held since `held` was called."""
        ...


class CudaMemory:
    """`DeviceMemory` of torch's allocator on one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def release(self) -> None:
        torch.cuda.empty_cache()

    def held(self) -> int:
        torch.cuda.reset_peak_memory_stats(self._device)
        return torch.cuda.memory_reserved(self._device)

    def peak(self) -> int:
        return torch.cuda.max_memory_reserved(self._device)


def peak_of(memory: DeviceMemory, run: Callable[[], None]) -> int:
    """Bytes that `run` takes at its height, over what is held before it."""
    memory.release()
    before = memory.held()
    run()
    most = memory.peak()
    memory.release()
    return max(0, most - before)


def step_bytes(
    loaded: LoadedModel, memory: DeviceMemory, block_size: int, num_tokens: int, max_num_seqs: int, graphs: bool
) -> int:
    """Bytes of a step of `num_tokens` tokens; with `graphs` also those of captured decodes, which keep theirs.

    Raises:
        ModelLoadError: that much is not there; the text says what is.
    """
    try:
        return _measured(loaded, memory, block_size, num_tokens, max_num_seqs, graphs)
    except torch.OutOfMemoryError as error:
        reason = first_sentence(error)
    memory.release()  # outside of the handler: the error's frames would keep the step's tensors alive
    raise ModelLoadError(
        f"no memory for a step of {num_tokens} tokens and {max_num_seqs} sequences beside the weights: "
        f"{gib(free_memory(loaded.device))} of {gib(all_memory(loaded.device))} are free on {loaded.device} "
        f"({reason}); free memory, lower max_num_batched_tokens or max_num_seqs, or take a smaller model"
    )


def _measured(
    loaded: LoadedModel, memory: DeviceMemory, block_size: int, num_tokens: int, max_num_seqs: int, graphs: bool
) -> int:
    plan = largest_step(num_tokens, max_num_seqs, loaded.max_model_len, block_size)
    blocks = max((block for entry in plan.batch for block in entry.seq.block_table), default=0) + 1
    cache = KVCache(blocks, block_size, loaded.dtype, loaded.device, loaded.backend)
    if loaded.shares_prefixes:
        cache.allocate(loaded.kv_layout)
    tier = make_tier(loaded.tier, loaded.model, cache)

    def run() -> None:
        with torch.inference_mode():
            logits = tier.run(plan).logits.float()
            _ = logits.clone(), torch.log_softmax(logits, dim=-1)  # as the sampler has them beside each other
            tier.release([entry.seq.seq_id for entry in plan.batch])

    try:
        most = peak_of(memory, run)
        if isinstance(tier, FlatTier) and isinstance(loaded.backend, KernelAttention):
            width = -(-loaded.max_model_len // block_size)
            decodes = [peak_of(memory, run) for run in _decodes(tier, loaded.backend, max_num_seqs, width)]
            # Captured decodes keep their memory, and have buffers of their own beside those of eager steps. The latter
            # are there by now: what is free is free beside them.
            kept = loaded.backend.buffer_bytes
            most = most + max(decodes) + kept if graphs else max(most, *decodes)
            most -= min(most, kept)
        return most
    finally:
        tier.close()
        cache.clear()
        memory.release()


def _decodes(tier: FlatTier, backend: KernelAttention, rows: int, width: int) -> Iterator[Callable[[], None]]:
    """The largest decodes: plainly, and where a layer can be served so as cascades of one group and of most.

    Their contexts are empty, but buffers follow from what a row of the tables can name.
    """
    counts = [0, 1, rows] if backend.gate.shapes and rows > 1 else [0]
    for num_groups in counts:

        def decode(num_groups: int = num_groups) -> None:
            with torch.inference_mode():
                tier.decode(DecodeInputs(rows, width, tier.cache.device, num_groups))

        yield decode


def largest_step(num_tokens: int, max_num_seqs: int, max_model_len: int, block_size: int) -> StepPlan:
    """A plan of `num_tokens` dummy tokens: prompts as long as they can be, then decodes, each with a row of logits."""
    plan, block = StepPlan(1), 0
    left = min(num_tokens, max_num_seqs * max_model_len)
    for number in range(min(max_num_seqs, left)):
        others = min(max_num_seqs, num_tokens) - number - 1
        length = min(max_model_len, max(1, left - others))
        table = list(range(block, block - (-length // block_size)))
        seq = Sequence(number, str(number), [0] * length, length, 1, block_table=table)
        plan.batch.append(ScheduledSequence(seq, 0, length, 0, "prefill", samples=True))
        left, block = left - length, block + len(table)
        if not left:
            break
    return plan
