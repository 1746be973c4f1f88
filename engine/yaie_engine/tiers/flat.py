"""Tier "flat": one forward over the tokens of all sequences, attention over the paged cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from yaie_engine.attention import StepSlot, attach, detach
from yaie_engine.batch import FlatBatch, RunnerOutput
from yaie_engine.kv_cache import KVCache
from yaie_engine.plan import StepPlan

from .forward import ForwardCall


class FlatTier:
    """For models whose attention goes through transformers' attention interface and that keep no other state."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.cache = cache
        self.slot = StepSlot()
        self.attention_calls: dict[int, int] = {}
        self._call = ForwardCall(model)
        attach(model, self.slot)

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward. Attention is called once per layer."""
        batch = FlatBatch(plan, self.cache.block_size, self.cache.device, prompt_ids)
        self.slot.cache, self.slot.step, self.slot.calls = self.cache, self.cache.backend.step(batch), {}
        try:
            keep = None if batch.keeps_all else batch.keep
            rows = self._call.logits(batch.input_ids, batch.position_ids, keep, use_cache=False)
        finally:
            self.slot.cache = self.slot.step = None
            self.attention_calls = self.slot.calls
        return batch.split(rows)

    def release(self, seq_ids: Collection[int]) -> None:
        """Nothing is kept per sequence outside of the blocks."""

    def close(self) -> None:
        detach(self._call.model)
        del self._call, self.cache
