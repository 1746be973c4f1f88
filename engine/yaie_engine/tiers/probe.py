"""Which tier serves a model: decided by running it. A model that no tier reproduces is refused.

Two short sequences of unequal length go through two chunks and one decode, mixed in one batch, in small scattered
blocks full of NaN; every row of logits is compared with the plain model. A second run shrinks the windows that are
longer than the probe, so that a mask that differs only in long contexts shows as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from yaie_engine.attention import NAME, AttentionArguments
from yaie_engine.errors import ModelLoadError
from yaie_engine.kv_cache import GrowingKVCache, KVLayout
from yaie_engine.loaded import TierName

from .flat import FlatTier
from .forward import Tier
from .make import TIERS, use_attention
from .measure import (
    BLOCK_SIZE,
    CHUNKED,
    NUM_BLOCKS,
    WHOLE,
    Steps,
    plain_logits,
    probe_sequences,
    relative_error,
    row_errors,
    run_steps,
    state_layout,
)
from .state import StateTier
from .upcast import LOW, float32_arithmetic
from .windows import Windows, beyond_the_probe, seen_as_configured, shrunk

# Root mean square of the error over the spread of the plain model's logits, worst row. In float32 rounding stays 100
# times below; a mask, scale or state that is wrong lies above 0.1. Where half precision exceeds its bound (experts that
# were chosen by a hair do), the run is repeated in float32 arithmetic.
TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The chosen tier and what was learnt on the way; `error` as in TOLERANCE.

    `usual` is the median row's error in the model's own arithmetic, wherever `error` was measured: a few experts that
    were chosen by a hair do not move it.
    """

    tier: TierName
    reason: str
    chunks_prefill: bool
    layout: KVLayout
    vocab_size: int
    state_bytes: int
    error: float
    measured_in: torch.dtype
    usual: float


@dataclass(slots=True)
class Probe:
    """One model under test, in eval mode; its attention implementation is changed to what the tier needs."""

    model: Any
    dtype: torch.dtype
    device: torch.device
    max_model_len: int
    notes: list[str] = field(default_factory=list)
    plain_attention: str = ""
    _expected: dict[tuple[torch.dtype, bool], list[Tensor]] = field(default_factory=dict)

    def choose(self) -> ProbeResult:
        """Try flat, paged, state in chunks and state with whole prompts, in this order.

        Raises:
            ModelLoadError: none of them reproduces the plain model, or it is no causal language model.
        """
        current = self.model.config.get_text_config()._attn_implementation or "eager"
        self.plain_attention = "eager" if current == NAME else current
        self._check_causal()
        opaque = beyond_the_probe(self.model, self.max_model_len)
        if opaque:
            self.notes.append(f"flat and paged: {opaque} limits what a token sees in ways that a probe cannot test")
        attempts: list[Callable[[], ProbeResult | str]] = [
            self._flat,
            lambda: self._own_attention("paged", CHUNKED),
            lambda: self._own_attention("state", CHUNKED),
            lambda: self._own_attention("state", WHOLE),
        ]
        for attempt in attempts[3:] if opaque else attempts:
            outcome = attempt()
            if isinstance(outcome, ProbeResult):
                return outcome
            self.notes.append(outcome)
        raise ModelLoadError(
            f"{type(self.model).__name__} cannot be served: no tier gives the answers of the plain model "
            f"({'; '.join(self.notes)})"
        )

    def agrees(self, result: ProbeResult, rounds: bool = False) -> bool:
        """Whether the model, changed since `choose`, still gives the answers that the plain model gave then.

        In float32 arithmetic other kernels may run than in the model's own: there it must round as it did before. With
        `rounds` the model rounds its weights otherwise than the plain one: only its own arithmetic says something.
        """
        if rounds:
            steps = CHUNKED if result.chunks_prefill else WHOLE
            try:
                usual = self._worse_of_both(result.tier, steps, {}, self.dtype).usual
            except Exception:  # as in `_compare`
                return False
            return usual <= max(2 * result.usual, TOLERANCE[self.dtype])
        again = self._compare(result.tier, CHUNKED if result.chunks_prefill else WHOLE, {})
        return isinstance(again, ProbeResult) and again.usual <= max(2 * result.usual, TOLERANCE[self.dtype])

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

    def _own_attention(self, tier: TierName, steps: Steps) -> ProbeResult | str:
        use_attention(self.model, self.plain_attention)
        return self._compare(tier, steps, {})

    def _compare(self, name: TierName, steps: Steps, seen: dict[int, AttentionArguments]) -> ProbeResult | str:
        """Measure; where half precision gives a large difference, float32 arithmetic tells rounding from a mistake."""
        label = f"{name}, whole prompts" if steps is WHOLE else name
        try:
            result = self._worse_of_both(name, steps, seen, self.dtype)
            if self.dtype in LOW and not result.error <= TOLERANCE[self.dtype]:
                with float32_arithmetic(self.model):
                    usual = result.usual
                    result = replace(self._worse_of_both(name, steps, seen, torch.float32), usual=usual)
        except Exception as error:  # whatever a model raises in a tier rules that tier out, nothing else
            return f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        if not result.error <= TOLERANCE[result.measured_in]:
            return f"{label}: logits differ by {result.error:.1e} of their spread"
        return result

    def _worse_of_both(
        self, name: TierName, steps: Steps, seen: dict[int, AttentionArguments], dtype: torch.dtype
    ) -> ProbeResult:
        """Run as configured, then with shrunk windows if that can matter."""
        result = self._measure(name, steps, seen, dtype, False)
        with shrunk(self.model, self.max_model_len) as anything:
            if not anything or not result.error <= TOLERANCE[dtype]:
                return result
            return max(result, self._measure(name, steps, {}, dtype, True), key=lambda one: one.error)

    def _measure(
        self,
        name: TierName,
        steps: Steps,
        seen: dict[int, AttentionArguments],
        dtype: torch.dtype,
        small_windows: bool,
    ) -> ProbeResult:
        expected = self._plain(dtype, small_windows)
        cache = GrowingKVCache(NUM_BLOCKS, BLOCK_SIZE, dtype, self.device)
        tier: Tier = TIERS[name](self.model, cache)
        try:
            rows = run_steps(tier, probe_sequences(self._vocab), steps)
            if isinstance(tier, FlatTier):
                seen.update(tier.slot.seen)
            layout, state_bytes = KVLayout.of(cache), 0
            if isinstance(tier, StateTier):
                layout, state_bytes = state_layout(tier)
        finally:
            tier.close()
        errors = torch.cat([row_errors(ours, plain) for ours, plain in zip(rows, expected, strict=True)])
        error, usual = float(errors.max()), float(errors.median())
        chunks, width = steps is not WHOLE, int(expected[0].shape[-1])
        reason = self._reason(error, chunks, dtype)
        return ProbeResult(name, reason, chunks, layout, width, state_bytes, error, dtype, usual)

    def _reason(self, error: float, chunks: bool, dtype: torch.dtype) -> str:
        """Plain words: what was measured, then why no higher tier serves."""
        words = [f"equals the plain model within {error:.1e} of the logit spread"]
        if dtype != self.dtype:
            words = [f"{words[0]} in float32 arithmetic"]
        if not chunks:
            words.append("prompts go in whole")
        return "; ".join([*words, *self.notes])

    # ---- the plain model

    @property
    def _vocab(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[0])

    def _plain(self, dtype: torch.dtype, small_windows: bool) -> list[Tensor]:
        """What the tiers are held to; computed once per arithmetic and window setting."""
        key = (dtype, small_windows)
        if key not in self._expected:
            current = self.model.config.get_text_config()._attn_implementation
            use_attention(self.model, "eager")
            sequences = probe_sequences(self._vocab)
            self._expected[key] = [plain_logits(self.model, seq.token_ids, self.device) for seq in sequences]
            use_attention(self.model, current)
        return self._expected[key]

    def _check_causal(self) -> None:
        """A row must not depend on the tokens behind it, else no cache can serve the model."""
        try:
            error = self._causal_error(self.dtype)
            if self.dtype in LOW and not error <= TOLERANCE[self.dtype]:
                with float32_arithmetic(self.model):
                    error = self._causal_error(torch.float32)
        except Exception as failure:  # the plain model itself does not run
            text = str(failure).splitlines()[0][:160] if str(failure) else type(failure).__name__
            raise ModelLoadError(f"{type(self.model).__name__} does not run on text alone: {text}") from failure
        if error <= TOLERANCE[self.dtype]:
            return
        if not all(bool(rows.isfinite().all()) for rows in self._plain(self.dtype, False)):
            raise ModelLoadError(
                f"{type(self.model).__name__} gives NaN or infinity for ordinary text: look at its weights, or at "
                f"dtype={str(self.dtype).removeprefix('torch.')!r}, which may be too narrow for them"
            )
        raise ModelLoadError(f"{type(self.model).__name__} looks at later tokens: it is no causal language model")

    def _causal_error(self, dtype: torch.dtype) -> float:
        expected = self._plain(dtype, False)[0]
        use_attention(self.model, "eager")
        part = plain_logits(self.model, probe_sequences(self._vocab)[0].token_ids[:-4], self.device)
        use_attention(self.model, self.plain_attention)
        return relative_error(part, expected[: part.shape[0]])
