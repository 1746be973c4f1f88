"""Which tier serves a model: decided by running it. A model that no tier reproduces is refused.

Two short sequences of unequal length go through two chunks and one decode, mixed in one batch, in small scattered
blocks full of NaN; every row of logits is compared with the plain model. Windows longer than the probe are shrunk for a
second run, so that a mask that differs only in long contexts shows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from yaie_engine.attention import NAME, AttentionArguments
from yaie_engine.errors import ModelLoadError
from yaie_engine.kv_cache import GrowingKVCache, KVLayout, LayerLayout
from yaie_engine.loaded import TierName
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.sequence import Sequence

from .flat import FlatTier
from .forward import Tier
from .make import TIERS, use_attention
from .state import StateTier
from .windows import Windows, seen_as_configured, shrunk

LENGTHS = (13, 9)
CHUNKED = ({0: 8, 1: 7}, {1: 1, 0: 4}, {0: 1, 1: 1})
WHOLE = ({0: 12, 1: 8}, {0: 1, 1: 1})
BLOCK_SIZE, NUM_BLOCKS = 4, 16
# Root mean square of the error over the spread of the plain model's logits, worst row. Rounding alone stays 10 times
# below these; a mask, scale or state that is wrong lies above 0.1 even in a mild case.
TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The chosen tier and what was learnt on the way; `error` as in TOLERANCE."""

    tier: TierName
    reason: str
    chunks_prefill: bool
    layout: KVLayout
    vocab_size: int
    state_bytes: int
    error: float


@dataclass(slots=True)
class Probe:
    """One model under test, in eval mode; its attention implementation is changed to what the tier needs."""

    model: Any
    dtype: torch.dtype
    device: torch.device
    max_model_len: int
    notes: list[str] = field(default_factory=list)
    plain_attention: str = ""

    def choose(self) -> ProbeResult:
        """Try flat, paged and state in this order.

        Raises:
            ModelLoadError: none of them reproduces the plain model.
        """
        self.plain_attention = self.model.config.get_text_config()._attn_implementation or "eager"
        if self.plain_attention == NAME:
            self.plain_attention = "eager"
        attempts: list[Callable[[], ProbeResult | str]] = [
            self._flat,
            lambda: self._own_attention("paged", CHUNKED),
            lambda: self._own_attention("state", CHUNKED),
            lambda: self._own_attention("state", WHOLE),
        ]
        for attempt in attempts:
            outcome = attempt()
            if isinstance(outcome, ProbeResult):
                return outcome
            self.notes.append(outcome)
        raise ModelLoadError(
            f"{type(self.model).__name__} cannot be served: no tier gives the answers of the plain model "
            f"({'; '.join(self.notes)})"
        )

    # ---- tiers

    def _flat(self) -> ProbeResult | str:
        if not use_attention(self.model, NAME):
            return "flat: its attention does not go through transformers' interface"
        windows = Windows.of(self.model)
        if windows.chunk and windows.chunk < self.max_model_len:
            return f"flat: attention in chunks of {windows.chunk} tokens, contexts up to {self.max_model_len}"
        seen: dict[int, AttentionArguments] = {}
        outcome = self._compare("flat", CHUNKED, seen)
        if isinstance(outcome, ProbeResult):
            wrong = seen_as_configured(self.model, seen, self.max_model_len)
            return f"flat: {wrong}" if wrong else outcome
        return outcome

    def _own_attention(self, tier: TierName, steps: tuple[dict[int, int], ...]) -> ProbeResult | str:
        use_attention(self.model, self.plain_attention)
        return self._compare(tier, steps, {})

    def _compare(
        self, name: TierName, steps: tuple[dict[int, int], ...], seen: dict[int, AttentionArguments]
    ) -> ProbeResult | str:
        """Run as configured, then with shrunk windows; the worse error counts."""
        label = f"{name}, whole prompts" if steps is WHOLE else name
        try:
            result = self._measure(name, steps, seen)
            with shrunk(self.model) as anything:
                if anything and result.error <= TOLERANCE[self.dtype]:
                    again = self._measure(name, steps, {})
                    result = max(result, again, key=lambda one: one.error)
        except Exception as error:  # whatever a model raises in a tier rules that tier out, nothing else
            return f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        if not result.error <= TOLERANCE[self.dtype]:
            return f"{label}: logits differ by {result.error:.1e} of their spread"
        return result

    def _measure(
        self, name: TierName, steps: tuple[dict[int, int], ...], seen: dict[int, AttentionArguments]
    ) -> ProbeResult:
        sequences = self._sequences()
        implementation = self.model.config.get_text_config()._attn_implementation
        expected = self._plain(sequences)
        use_attention(self.model, implementation)
        cache = GrowingKVCache(NUM_BLOCKS, BLOCK_SIZE, self.dtype, self.device)
        tier: Tier = TIERS[name](self.model, cache)
        try:
            rows = run_steps(tier, sequences, steps)
            if isinstance(tier, FlatTier):
                seen.update(tier.slot.seen)
            layout, state_bytes = KVLayout.of(cache), 0
            if isinstance(tier, StateTier):
                layout, state_bytes = state_layout(tier)
        finally:
            tier.close()
        error = max(relative_error(ours, plain) for ours, plain in zip(rows, expected, strict=True))
        chunks, vocab = steps is not WHOLE, int(expected[0].shape[-1])
        return ProbeResult(name, self._reason(error, chunks), chunks, layout, vocab, state_bytes, error)

    def _reason(self, error: float, chunks: bool) -> str:
        """Plain words: what was measured, then why no higher tier serves."""
        words = [f"equals the plain model within {error:.1e} of the logit spread"]
        if not chunks:
            words.append("prompts go in whole")
        return "; ".join([*words, *self.notes])

    def _sequences(self) -> list[Sequence]:
        vocab = self.model.get_input_embeddings().weight.shape[0]
        made, blocks = [], [(7 * i + 3) % NUM_BLOCKS for i in range(NUM_BLOCKS)]
        for number, length in enumerate(LENGTHS):
            ids = [(5 + 13 * number + (37 + number) * i * i + 11 * i) % vocab for i in range(length)]
            count = -(-length // BLOCK_SIZE)
            table, blocks = blocks[:count], blocks[count:]
            made.append(Sequence(number, str(number), ids, length, 1, block_table=table))
        return made

    def _plain(self, sequences: list[Sequence]) -> list[Tensor]:
        """Logits [tokens, vocab] of the model as transformers runs it, one sequence at a time, without a cache."""
        use_attention(self.model, "eager")
        with torch.inference_mode():
            return [
                self.model(input_ids=torch.tensor([seq.token_ids], device=self.device), use_cache=False).logits[0]
                for seq in sequences
            ]


def run_steps(tier: Tier, sequences: list[Sequence], steps: tuple[dict[int, int], ...]) -> list[Tensor]:
    """Logits of every row of every sequence, computed in these steps (tokens per sequence).

    Raises:
        ValueError: a layer's attention was not called exactly once in each step.
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
        if isinstance(tier, FlatTier):
            layers = set(tier.attention_calls) if layers is None else layers
            if not layers or set(tier.attention_calls) != layers or set(tier.attention_calls.values()) != {1}:
                raise ValueError(f"attention calls per layer were {tier.attention_calls or 'none'}, not one each")
    return [torch.cat(parts) for parts in rows]


def relative_error(ours: Tensor, plain: Tensor) -> float:
    """Root mean square of the difference over the spread of the plain logits, worst row; NaN counts as infinite."""
    difference = (ours.double() - plain.double()).square().mean(-1).sqrt()
    spread = plain.double().std(-1).clamp_min(1e-30)
    worst = float((difference / spread).nan_to_num(nan=torch.inf).max())
    return worst


def state_layout(tier: StateTier) -> tuple[KVLayout, int]:
    """K and V of the attention layers, and the bytes of everything else that one sequence keeps."""
    cache, _ = next(iter(tier.states.values()))
    parts, other = [], 0
    for number, layer in enumerate(cache.layers):
        key, value = getattr(layer, "keys", None), getattr(layer, "values", None)
        if isinstance(key, Tensor) and isinstance(value, Tensor) and key.dim() == 4:
            parts.append(LayerLayout(number, key.shape[1], key.shape[3], value.shape[3]))
        other += sum(tensor.nbytes for tensor in _tensors(vars(layer)) if tensor is not key and tensor is not value)
    return KVLayout(tuple(parts)), other


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
