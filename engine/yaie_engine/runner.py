"""From a step's plan to logits: block copies, then one forward."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import torch

from .batch import RunnerOutput
from .config import EngineConfig
from .device_errors import within_memory
from .errors import EngineDeadError, ModelLoadError
from .graphs import Capture, CudaCapture, DecodeGraphs
from .kv_cache import KVCache, KVLayout
from .loaded import LoadedModel
from .memory import choose_num_blocks, gib
from .plan import StepPlan
from .step_memory import CudaMemory, step_bytes
from .tiers.flat import FlatTier
from .tiers.forward import Tier
from .tiers.make import make_tier

__all__ = ["ModelRunner", "RunnerOutput"]

DEFAULT_BUDGET = {"cpu": 512, "cuda": 2048}


class ModelRunner:
    """Owns the KV tensors of one loaded model and runs its steps.

    `num_blocks`, `block_size` and `max_num_batched_tokens` are what the scheduler works with. Made on any thread; `run`
    belongs to the engine thread.

    Raises:
        ModelLoadError: the KV cache does not fit into memory.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self.block_size = config.block_size
        self.max_num_batched_tokens = token_budget(loaded, config)
        graphs = loaded.backend.name == "cuda" and not config.enforce_eager
        self.num_blocks = choose_num_blocks(
            config,
            loaded.kv_layout,
            loaded.dtype,
            loaded.device,
            loaded.max_model_len,
            loaded.state_bytes,
            _step_bytes(loaded, config, self.max_num_batched_tokens, graphs),
        )
        self.cache = KVCache(self.num_blocks, self.block_size, loaded.dtype, loaded.device, loaded.backend)
        if loaded.shares_prefixes:
            self._allocate(loaded.kv_layout)
        self.model_config = loaded.model.config.get_text_config()
        self._fused = loaded.fused
        self._tier: Tier | None = make_tier(loaded.tier, loaded.model, self.cache)
        if graphs:
            self.use_graphs(CudaCapture(loaded.device), config.max_num_seqs, loaded.max_model_len)

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        """Carry out `plan`: forget what was released, copy blocks, run the forward.

        The sequences in `prompt_logit_ids` get the logits of every row of their chunk.

        Raises:
            EngineDeadError: the runner is closed.
            DeviceMemoryError: the step did not fit into memory; a smaller one may.
        """
        if self._tier is None:
            raise EngineDeadError("the runner is closed; load the model again")
        return within_memory(partial(self._run, self._tier, plan, prompt_logit_ids), plan, self.cache.device)

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        """Make the inputs of `plan`, the next step if all goes as expected, but for its ids. Waits for nothing."""
        if isinstance(self._tier, FlatTier):
            with torch.inference_mode():
                self._tier.prepare(plan, prompt_logit_ids)

    def replays(self, num_decodes: int) -> bool:
        """Whether a step of so many decodes, more than none, is launched as a graph that has been captured."""
        graphs = self._tier.graphs if isinstance(self._tier, FlatTier) else None
        return graphs is not None and num_decodes > 0 and graphs.ready(num_decodes)

    def use_graphs(self, capture: Capture, max_num_seqs: int, max_model_len: int) -> DecodeGraphs:
        """Capture the decode steps and replay them from now on. Needs tier "flat" on the kernel backend."""
        if not isinstance(self._tier, FlatTier):
            raise ValueError("only the flat tier can be captured")
        with torch.inference_mode():
            graphs = self._tier.use_graphs(capture, max_num_seqs, max_model_len)
            graphs.prepare()
        return graphs

    def forget_graphs(self) -> None:
        """Drop captured steps, because a kernel was exchanged; the next ones are captured anew. Engine thread only."""
        if isinstance(self._tier, FlatTier) and self._tier.graphs is not None:
            self._tier.graphs.drop()

    @property
    def attention_calls(self) -> dict[int, int]:
        """How often each layer called the paged attention in the last step."""
        return {} if self._tier is None else self._tier.attention_calls

    def close(self) -> None:
        """Drop every tensor. Idempotent."""
        if self._tier is not None:
            self._tier.close()
        if self._fused is not None:
            self._fused.restore()
        self._tier = self._fused = None
        self.cache.clear()

    def _run(self, tier: Tier, plan: StepPlan, prompt_logit_ids: Collection[int]) -> RunnerOutput:
        with torch.inference_mode():
            tier.release(plan.released)
            self.cache.copy(plan.copies)
            return tier.run(plan, prompt_logit_ids)

    def _allocate(self, layout: KVLayout) -> None:
        try:
            self.cache.allocate(layout)
        except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU allocator raises the plain kind
            self.cache.clear()
            per_block = layout.bytes_per_token(self.cache.dtype) * self.block_size
            raise ModelLoadError(
                f"no memory for {self.num_blocks} KV blocks ({gib(self.num_blocks * per_block)}): lower num_blocks"
            ) from error


def _step_bytes(loaded: LoadedModel, config: EngineConfig, num_tokens: int, graphs: bool) -> int:
    """What the largest step takes on a GPU; 0 on a CPU, and where num_blocks is given anyway."""
    if loaded.device.type != "cuda" or config.num_blocks is not None:
        return 0
    memory = CudaMemory(loaded.device)
    return step_bytes(loaded, memory, config.block_size, num_tokens, config.max_num_seqs, graphs)


def token_budget(loaded: LoadedModel, config: EngineConfig) -> int:
    """Tokens of one step. Where a prompt must go in whole, the longest one has to fit."""
    budget = config.max_num_batched_tokens or DEFAULT_BUDGET.get(loaded.device.type, 512)
    whole = not (config.enable_chunked_prefill and loaded.chunks_prefill)
    return max(budget, loaded.max_model_len) if whole else budget
