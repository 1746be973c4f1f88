"""The probe's run: two short sequences through a tier, every row of logits held against the plain model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.sequence import Sequence
from yaie_engine.states.copying import tensors_in

from .forward import Tier
from .paged import PagedTier
from .state import StateTier

Steps = tuple[dict[int, int], ...]
LENGTHS = (13, 9)
CHUNKED: Steps = ({0: 8, 1: 7}, {1: 1, 0: 4}, {0: 1, 1: 1})
WHOLE: Steps = ({0: 12, 1: 8}, {0: 1, 1: 1})
BLOCK_SIZE, NUM_BLOCKS = 4, 64


def probe_sequences(vocab: int, lengths: tuple[int, ...] = LENGTHS, block_size: int = BLOCK_SIZE) -> list[Sequence]:
    """Sequences of these lengths with token ids all over the vocabulary, in scattered ones of NUM_BLOCKS blocks."""
    made, blocks = [], [(7 * i + 3) % NUM_BLOCKS for i in range(NUM_BLOCKS)]
    for number, length in enumerate(lengths):
        ids = [(5 + 13 * number + (37 + number) * i * i + 11 * i) % vocab for i in range(length)]
        count = -(-length // block_size)
        table, blocks = blocks[:count], blocks[count:]
        made.append(Sequence(number, str(number), ids, length, 1, block_table=table))
    return made


def plain_logits(model: Any, ids: list[int], device: torch.device) -> Tensor:
    """Logits [tokens, vocab] of the model as transformers runs it: one sequence, no cache."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0]
    return logits


def run_steps(tier: Tier, sequences: list[Sequence], steps: Steps) -> list[Tensor]:
    """Logits of every row of every sequence, computed in these steps (tokens per sequence).

    Raises:
        ValueError: a layer's attention was not called exactly once in each step, or no layer keeps K and V.
    """
    rows: list[list[Tensor]] = [[] for _ in sequences]
    done, layers = [0] * len(sequences), None
    ids = {seq.seq_id for seq in sequences}
    for number, step in enumerate(steps, start=1):
        plan = StepPlan(number)
        for i, count in step.items():
            plan.batch.append(ScheduledSequence(sequences[i], done[i], count, done[i], "prefill", False))
            done[i] += count
        with torch.inference_mode():
            output = tier.run(plan, ids)
        for i in step:
            rows[i].append(output.prompt_logits[sequences[i].seq_id])
        layers = _same_layers(tier, layers, len(step))
    return [torch.cat(parts) for parts in rows]


def _same_layers(tier: Tier, before: set[int] | None, num_sequences: int) -> set[int]:
    """The layers that kept K and V in this step: the same in all steps, each once per forward."""
    if isinstance(tier, StateTier):
        return set()
    expected = num_sequences if isinstance(tier, PagedTier) else 1
    calls = tier.attention_calls
    layers = set(calls)
    if not layers or set(calls.values()) != {expected} or (before is not None and layers != before):
        raise ValueError(f"attention calls per layer were {calls or 'none'}, not {expected} each")
    return layers


def row_errors(ours: Tensor, plain: Tensor) -> Tensor:
    """Root mean square of each row's difference over the spread of the plain logits; NaN counts as infinite."""
    difference = (ours.double() - plain.double()).square().mean(-1).sqrt()
    spread = plain.double().std(-1).clamp_min(1e-30)
    return (difference / spread).nan_to_num(nan=torch.inf)


def relative_error(ours: Tensor, plain: Tensor) -> float:
    """The worst of `row_errors`."""
    return float(row_errors(ours, plain).max())


def state_layout(tier: StateTier) -> tuple[KVLayout, int]:
    """K and V of the attention layers, and the bytes of everything else that one sequence keeps.

    Raises:
        ValueError: nothing is kept, so the model would forget what came before.
    """
    cache = next(iter(tier.states.values())).state
    parts, counted, other = [], set(), 0
    for number, layer in enumerate(getattr(cache, "layers", ())):
        key, value = getattr(layer, "keys", None), getattr(layer, "values", None)
        if isinstance(key, Tensor) and isinstance(value, Tensor) and key.dim() == 4:
            parts.append(LayerLayout(number, key.shape[1], key.shape[3], value.shape[3]))
            counted |= {id(key), id(value)}
    for tensor in tensors_in(cache):
        if id(tensor) not in counted:
            counted.add(id(tensor))
            other += tensor.nbytes
    if not parts and not other:
        raise ValueError("it keeps no state between steps")
    return KVLayout(tuple(parts)), other
