"""Tier "state": each sequence keeps transformers' own cache, for models with recurrent or convolution state.

The state cannot be cut into blocks, so nothing is shared; blocks only count what a sequence occupies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from yaie_engine.batch import RunnerOutput
from yaie_engine.errors import YaieError
from yaie_engine.kv_cache import KVCache
from yaie_engine.observation import Observer
from yaie_engine.plan import ScheduledSequence, StepPlan

from .forward import ForwardCall, collect


class StateTier:
    """One cache object per sequence, made by the model itself, from its first token until it is released."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.cache = cache
        self.states: dict[int, tuple[Any, int]] = {}
        self.attention_calls: dict[int, int] = {}
        self._call = ForwardCall(model)

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward per sequence.

        Raises:
            YaieError: a sequence goes on where its state does not stand.
        """
        return collect(plan, prompt_ids, self._forward, self._call.observation, self.cache)

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at every forward."""
        self._call.observe(observers)

    def _forward(self, entry: ScheduledSequence, keep: Tensor) -> Tensor:
        seq_id = entry.seq.seq_id
        state, position = self.states.pop(seq_id, (None, 0))
        if entry.start == 0:
            state = None
        elif state is None or position != entry.start:
            raise YaieError(f"the state of sequence {seq_id} stands at {position}, not at {entry.start}")
        rows, state = self._call.chunk(entry, state, keep, self.cache.device)
        self.states[seq_id] = (state, entry.stop)
        return rows

    def release(self, seq_ids: Collection[int]) -> None:
        """Drop the states of these sequences."""
        for seq_id in seq_ids:
            self.states.pop(seq_id, None)

    def close(self) -> None:
        self.states.clear()
        self._call.observe(())
        del self._call, self.cache
