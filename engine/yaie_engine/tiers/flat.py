"""Tier "flat": one forward over the tokens of all sequences, attention over the paged cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from yaie_engine.attention import StepSlot, attach, detach
from yaie_engine.backends.base import AttentionBackend, AttentionStep
from yaie_engine.backends.cpu import CpuAttention
from yaie_engine.backends.kernel import KernelAttention
from yaie_engine.batch import FlatBatch, RunnerOutput
from yaie_engine.compiled import CompiledForward
from yaie_engine.graphs import Capture, DecodeGraphs, DecodeInputs
from yaie_engine.hooks import Hooks
from yaie_engine.kv_cache import KVCache
from yaie_engine.observation import ForwardRows, Observer
from yaie_engine.plan import StepPlan
from yaie_engine.sharing import Sharing

from .forward import ForwardCall


@dataclass(slots=True)
class FlatInputs:
    """What a step runs on: as a graph, or eagerly by a `step` of the attention backend."""

    batch: FlatBatch
    graphs: DecodeGraphs | None
    backend: AttentionBackend
    step: AttentionStep | None = None

    def send(self) -> AttentionStep:
        """Everything but the token ids as tensors on the device, made once."""
        if self.step is None:
            self.step = self.backend.step(self.batch)
            self.batch.send()
        return self.step


class FlatTier:
    """For models whose attention goes through transformers' attention interface and that keep no other state."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.cache = cache
        self.slot = StepSlot()
        self.graphs: DecodeGraphs | None = None
        self.compiled: CompiledForward | None = None
        self.attention_calls: dict[int, int] = {}
        self._call, self._hooks = ForwardCall(model), Hooks(model)
        attach(model, self.slot)

    def use_graphs(self, capture: Capture, max_num_seqs: int, max_model_len: int) -> DecodeGraphs:
        """Run decodes as graphs from now on. Not on the reference backend, which reads numbers while it attends."""
        width, backend = -(-max_model_len // self.cache.block_size), self.cache.backend

        def cascades(rows: int) -> bool:
            return isinstance(backend, KernelAttention) and backend.gate.ever(rows, self.cache.block_size)

        on_cpu = isinstance(backend, CpuAttention)
        self.graphs = DecodeGraphs(self.decode, capture, max_num_seqs, width, self.cache.device, cascades, on_cpu)
        return self.graphs

    def prepare(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> None:
        """Make what `run` needs and does not depend on token ids; for a graph it stays on the host, else it is sent."""
        plan.inputs = inputs = self._inputs(plan, prompt_ids)
        if inputs.graphs is not None:
            inputs.graphs.stage(inputs.batch)
        else:
            inputs.send()

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward. Attention is called once per layer."""
        inputs = plan.inputs if isinstance(plan.inputs, FlatInputs) else self._inputs(plan, prompt_ids)
        batch, graphs = inputs.batch, inputs.graphs
        rows = graphs.run(batch) if graphs is not None else None
        if rows is not None:
            return batch.split(rows if batch.keeps_all else rows[batch.keep])
        step, observation = inputs.send(), self._call.observation
        keep = None if batch.keeps_all else batch.keep
        if observation is None:
            return batch.split(self._forward(batch.input_ids, batch.position_ids, keep, step))
        observation.begin(ForwardRows(plan.step, batch.entries, batch.starts, batch.kept_rows, self.cache))
        rows = self._forward(batch.input_ids, batch.position_ids, keep, step)
        return replace(batch.split(rows), failures=observation.end(rows))

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at every forward."""
        self._call.observe(observers)

    @property
    def _watched(self) -> bool:
        """Whether somebody looks at the modules, each of which is to be called then."""
        return self._call.observation is not None or bool(self._hooks)

    def _inputs(self, plan: StepPlan, prompt_ids: Collection[int]) -> FlatInputs:
        graphs = self._graphs_for(plan, prompt_ids)
        sharing = self._sharing(plan, graphs)
        batch = FlatBatch(plan, self.cache.block_size, self.cache.device, prompt_ids, sharing)
        return FlatInputs(batch, graphs, self.cache.backend)

    def _graphs_for(self, plan: StepPlan, prompt_ids: Collection[int]) -> DecodeGraphs | None:
        """The graphs, where one can serve this step: all entries are one token, and each gives its logits once."""
        if self.graphs is None or self.graphs.failure or self._watched:
            return None
        fits = all(entry.num_tokens == 1 and entry.samples for entry in plan.batch)
        return self.graphs if fits and not any(entry.seq.seq_id in prompt_ids for entry in plan.batch) else None

    def _sharing(self, plan: StepPlan, graphs: DecodeGraphs | None) -> Sharing | None:
        """Which decodes read a prefix together; None where it does not pay."""
        backend = self.cache.backend
        if not isinstance(backend, KernelAttention) or (graphs is not None and graphs.cascade_failure):
            return None
        return backend.gate.choose(plan, self.cache.block_size, replayed=graphs is not None)

    def decode(self, inputs: DecodeInputs) -> Tensor:
        """What a graph records: all rows are decodes, and all logits are wanted."""
        backend = self.cache.backend
        if not isinstance(backend, KernelAttention | CpuAttention):
            raise ValueError(f"attention backend {backend.name!r} cannot be captured")
        return self._forward(inputs.input_ids, inputs.position_ids, None, backend.decodes(inputs))

    def _forward(self, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None, step: AttentionStep) -> Tensor:
        self.slot.cache, self.slot.step, self.slot.calls = self.cache, step, {}
        try:
            compiled = None if self._watched else self.compiled
            rows = None if compiled is None else compiled.logits(input_ids, position_ids, keep)
            return self._call.logits(input_ids, position_ids, keep, use_cache=False) if rows is None else rows
        finally:
            self.slot.cache = self.slot.step = self.slot.rotation = None
            self.attention_calls = self.slot.calls

    def release(self, seq_ids: Collection[int]) -> None:
        """Nothing is kept per sequence outside of the blocks."""

    def close(self) -> None:
        if self.graphs is not None:
            self.graphs.drop()
        self.graphs = self.compiled = None
        self._call.observe(())
        detach(self._call.model)
        del self._call, self._hooks, self.cache
