"""Tier "state": each sequence keeps transformers' own cache, for models with recurrent or convolution state.

The state cannot be cut into blocks; blocks only count what a sequence occupies. Prefixes are reused by whole states:
copies of those at the ends of prompts and where somebody wants one, and the states of requests that have ended. The
idea of kept whole states is that of llama.cpp's checkpoints for recurrent models.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from yaie_engine import sequence
from yaie_engine.batch import RunnerOutput
from yaie_engine.errors import YaieError
from yaie_engine.kv_cache import KVCache
from yaie_engine.observation import Observer
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.states.copying import is_sound, put_back, taken_out
from yaie_engine.states.kept import KeptState, KeptStates

from .forward import ForwardCall, collect


@dataclass(slots=True)
class LiveState:
    """The state of a sequence after its first `position` tokens."""

    seq: sequence.Sequence
    state: Any
    position: int


class StateTier:
    """One cache object per sequence, made by the model itself, from its first token until it is released.

    `kept` are the states that requests leave to others.
    """

    def __init__(self, model: Any, cache: KVCache, kept: KeptStates | None = None) -> None:
        self.cache, self.kept = cache, kept
        self.states: dict[int, LiveState] = {}
        self.attention_calls: dict[int, int] = {}
        self._call = ForwardCall(model)
        self._copies: list[tuple[int, KeptState]] = []
        if kept is not None:
            kept.settle = self._settle

    def run(self, plan: StepPlan, prompt_ids: Collection[int] = ()) -> RunnerOutput:
        """One forward per sequence, or more where a state within a prompt is wanted.

        Raises:
            YaieError: a sequence goes on where its state does not stand.
        """
        self._copies = []
        output = collect(plan, prompt_ids, self._forward, self._call.observation, self.cache)
        self._keep_copies(output.failed(plan) if self._copies else set())
        return output

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let these look at every forward. Meanwhile each token goes through one, and nothing is kept."""
        self._call.observe(observers)
        if self.kept is not None:
            self.kept.paused = bool(observers)

    # ---- forward

    def _forward(self, entry: ScheduledSequence, keep: Tensor) -> Tensor:
        """Logits [rows, vocab] of the rows `keep` of an entry."""
        seq, start, state = entry.seq, entry.start, None
        live, resume = self.states.pop(seq.seq_id, None), seq.resume
        seq.resume = None
        if start and live is not None and live.position == start:
            state = live.state
        elif start and resume is not None:
            if start + 1 == entry.stop == len(resume.token_ids) and isinstance(resume.logits, Tensor):
                self.states[seq.seq_id] = LiveState(seq, self._copy_of(resume), entry.stop)
                return resume.logits.to(self.cache.device)
            if start == len(resume.token_ids):
                state = self._copy_of(resume)
            else:  # what it was admitted with was cut by an eviction since
                keep, start = keep + start, 0
        elif start:
            raise YaieError(
                f"the state of sequence {seq.seq_id} stands at {live.position if live else 0}, not at {start}"
            )
        return self._run(replace(entry, start=start, num_tokens=entry.stop - start), state, keep)

    def _run(self, entry: ScheduledSequence, state: Any, keep: Tensor) -> Tensor:
        seq, rows, wanted = entry.seq, [], keep + entry.start
        ends = self._ends(entry)
        for start, stop in zip([entry.start, *ends], ends, strict=False):
            part = replace(entry, start=start, num_tokens=stop - start)
            here = wanted[(wanted >= start) & (wanted < stop)] - start
            found, state = self._call.chunk(part, state, here, self.cache.device)
            rows.append(found)
            if stop < entry.stop and self.kept is not None and (not self.kept.whole or not start):
                self._take_copy(seq, stop, state, None)
        self.states[seq.seq_id] = LiveState(seq, state, entry.stop)
        if entry.stop == seq.num_prompt_tokens and entry.samples:
            self._take_copy(seq, entry.stop, state, rows[-1][-1:])
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def _ends(self, entry: ScheduledSequence) -> list[int]:
        """Where the forwards of an entry end: where a state is wanted; token by token where the model knows no other
        way to go on."""
        kept, seq = self.kept, entry.seq
        if kept is None or seq.salt is None:
            return [entry.stop]
        if kept.whole and entry.start:
            return list(range(entry.start + 1, entry.stop + 1))
        inside = range(entry.start + 1, min(entry.stop, seq.num_prompt_tokens))
        prompt = seq.token_ids[: seq.num_prompt_tokens] if inside else []
        cuts = [cut for cut in kept.cuts(prompt, seq.salt) if cut in inside]
        if kept.whole and cuts:
            return [*cuts, *range(cuts[-1] + 1, entry.stop + 1)]
        return [*cuts, entry.stop]

    def _copy_of(self, kept: KeptState) -> object:
        kept.hits += 1
        return put_back(kept.state, self.cache.device)

    # ---- what others go on from

    def _take_copy(self, seq: sequence.Sequence, position: int, state: Any, logits: Tensor | None) -> None:
        kept, ids = self.kept, seq.token_ids[:position]
        if kept is None or seq.salt is None or not kept.lacks(ids, seq.salt, logits is not None):
            return
        made, num_bytes = taken_out(state)
        row = None if logits is None else logits.to("cpu", copy=True)
        num_bytes += 0 if row is None else row.nbytes
        self._copies.append((seq.seq_id, KeptState(tuple(ids), seq.salt, made, row, num_bytes)))

    def _keep_copies(self, failed: Collection[int]) -> None:
        """Keep the copies of this step, but nothing of who failed in it or of what is not finite."""
        for seq_id, copy in self._copies:
            if self.kept is not None and seq_id not in failed and is_sound(copy.state):
                self.kept.put(copy)
        self._copies = []

    def _settle(self) -> None:
        """The states of who has ended in order, or was preempted, are left to others, or to the same."""
        for seq_id, live in list(self.states.items()):
            seq = live.seq
            if self.kept is None or seq.salt is None or seq.state == "running":
                continue
            del self.states[seq_id]
            if seq.state == "failed":
                continue
            ids = tuple(seq.token_ids[: live.position])
            if self.kept.lacks(ids, seq.salt) and is_sound(live.state):
                made, num_bytes = taken_out(live.state)
                self.kept.put(KeptState(ids, seq.salt, made, None, num_bytes))

    def release(self, seq_ids: Collection[int]) -> None:
        """Drop the states of these sequences."""
        self._settle()
        for seq_id in seq_ids:
            self.states.pop(seq_id, None)

    def close(self) -> None:
        self.states.clear()
        self._call.observe(())
        if self.kept is not None:
            self.kept.settle = lambda: None
        del self._call, self.cache
