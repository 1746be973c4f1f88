"""Tier "flat": one forward over the tokens of all sequences, attention over the paged cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from yaie_engine.attention import StepSlot, attach, detach
from yaie_engine.backends.base import AttentionStep
from yaie_engine.backends.kernel import KernelAttention, KernelStep
from yaie_engine.batch import FlatBatch, RunnerOutput
from yaie_engine.graphs import Capture, DecodeGraphs, DecodeInputs
from yaie_engine.kv_cache import KVCache
from yaie_engine.plan import StepPlan

from .forward import ForwardCall


class FlatTier:
    """For models whose attention goes through transformers' attention interface and that keep no other state."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.cache = cache
        self.slot = StepSlot()
        self.graphs: DecodeGraphs | None = None
        self.attention_calls: dict[int, int] = {}
        self._call = ForwardCall(model)
        attach(model, self.slot)

    def use_graphs(self, capture: Capture, max_num_seqs: int, max_model_len: int) -> DecodeGraphs:
        """Run decodes as graphs from now on. Only the kernel backend can: it reads nothing back from the device."""
        width = -(-max_model_len // self.cache.block_size)
        self.graphs = DecodeGraphs(self._decode, capture, max_num_seqs, width, self.cache.device)
        return self.graphs

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward. Attention is called once per layer."""
        batch = FlatBatch(plan, self.cache.block_size, self.cache.device, prompt_ids)
        rows = None
        if self.graphs is not None and batch.num_single == batch.num_tokens and batch.keeps_all:
            rows = self.graphs.run(batch)
        if rows is None:
            keep = None if batch.keeps_all else batch.keep
            rows = self._forward(batch.input_ids, batch.position_ids, keep, self.cache.backend.step(batch))
        return batch.split(rows)

    def _decode(self, inputs: DecodeInputs) -> Tensor:
        """What a graph records: all rows are decodes, and all logits are wanted."""
        backend = self.cache.backend
        if not isinstance(backend, KernelAttention):
            raise ValueError(f"attention backend {backend.name!r} cannot be captured")
        step = KernelStep(backend.kernels, inputs.slots, inputs.tables, inputs.contexts, inputs.rows)
        return self._forward(inputs.input_ids, inputs.position_ids, None, step)

    def _forward(self, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None, step: AttentionStep) -> Tensor:
        self.slot.cache, self.slot.step, self.slot.calls = self.cache, step, {}
        try:
            return self._call.logits(input_ids, position_ids, keep, use_cache=False)
        finally:
            self.slot.cache = self.slot.step = None
            self.attention_calls = self.slot.calls

    def release(self, seq_ids: Collection[int]) -> None:
        """Nothing is kept per sequence outside of the blocks."""

    def close(self) -> None:
        if self.graphs is not None:
            self.graphs.drop()
        self.graphs = None
        detach(self._call.model)
        del self._call, self.cache
