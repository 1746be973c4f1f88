"""The flight recorder: a ring of step records, the tape beside it, and the records of ended requests.

Imports no torch.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from dataclasses import replace

from .changes import Changes
from .fault_points import fault_point
from .plan import StepPlan
from .record import RequestRecord
from .sequence import EndState, Sequence
from .snapshot import BatchEntry, BlockEvents, StepRecord, StepTimes
from .tape import Frame, LeftState, TableChange, Tape, TapeStep

KEPT_REQUESTS = 256


class Recorder:
    """What happened, oldest first. Appended on the engine thread, copied by the methods that give something back.

    A step is written in two parts, since its record is due before its last work is done: `step`, then `timed`.
    """

    def __init__(self, num_steps: int) -> None:
        self._steps: deque[StepRecord] = deque(maxlen=num_steps)
        self._tape: deque[TapeStep] = deque()
        self._base = Frame()
        self._requests: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)
        self._lock = threading.Lock()  # records and tape grow together
        self._untimed: int | None = None
        self._tables: dict[Sequence, list[int]] = {}
        self._arrived: list[str] = []
        self._left: list[tuple[str, LeftState]] = []

    def arrived(self, seq: Sequence) -> None:
        """A sequence was queued."""
        self._arrived.append(seq.label)

    def left(self, seq: Sequence, state: EndState) -> None:
        """A sequence ended."""
        fault_point("record", "left")
        self._left.append((seq.label, state))
        self._tables.pop(seq, None)

    @property
    def misses(self) -> bool:
        """Whether somebody whom the last record shows has left since."""
        return any(label not in self._arrived for label, _ in self._left)

    def step(self, plan: StepPlan, running: list[Sequence], changes: Changes, host_held: int = 0) -> BlockEvents:
        """Record one finished step, after which `running` go on and so many host blocks are held; gives back what its
        blocks did. `timed` follows."""
        fault_point("record", "step")
        tokens = {"prefill": 0, "decode": 0}
        for entry in plan.batch:
            tokens[entry.kind] += entry.num_tokens
        batch = tuple(BatchEntry(entry.seq.label, entry.kind, entry.num_tokens) for entry in plan.batch)
        tree_change = changes.take_tree()
        blocks, tree = changes.take()
        record = StepRecord(
            plan.step, tokens["prefill"], tokens["decode"], batch, blocks, tree, tuple(plan.preempted), StepTimes()
        )
        admitted = tuple(
            (entry.seq.label, entry.seq.admissions[-1].hit)
            for entry in plan.batch
            if entry.seq.admissions and entry.seq.admissions[-1].step == plan.step
        )
        left = (*self._stopped(running), *self._left)
        tables = tuple(self._table_changes(running))
        arrived = tuple(self._arrived)
        change = TapeStep(plan.step, time.time(), arrived, admitted, left, tables, tree_change, host_held)
        with self._lock:
            self._roll(change)
            self._steps.append(record)
            self._untimed = plan.step
        self._arrived, self._left = [], []
        return blocks

    def timed(self, step: int, ms: StepTimes) -> None:
        """The times of the step that was the last to be recorded: it is over now."""
        fault_point("record", "times")
        with self._lock:
            if self._untimed == step:
                self._steps[-1] = replace(self._steps[-1], ms=ms)
                self._untimed = None

    def _stopped(self, running: list[Sequence]) -> list[tuple[str, LeftState]]:
        """Sequences that ran after the step before and wait again now."""
        stopped = self._tables.keys() - set(running)
        for seq in stopped:
            del self._tables[seq]
        return [(seq.label, "swapped" if seq.swapped else "waiting") for seq in stopped]

    def _table_changes(self, running: list[Sequence]) -> list[TableChange]:
        """How each running table differs from the last one recorded: mostly it grew, rarely a block was exchanged."""
        changes = []
        for seq in running:
            before = self._tables.get(seq, [])
            kept = len(before)
            if seq.block_table[:kept] != before:
                both = enumerate(zip(before, seq.block_table, strict=False))
                kept = next((i for i, (a, b) in both if a != b), min(kept, len(seq.block_table)))
            changes.append(TableChange(seq.label, kept, tuple(seq.block_table[kept:]), seq.computed))
            if len(seq.block_table) != len(before) or kept != len(before):
                self._tables[seq] = list(seq.block_table)
        return changes

    def _roll(self, step: TapeStep) -> None:
        """Add a step; the oldest one becomes part of the frame before the ring."""
        if len(self._tape) == self._steps.maxlen:
            self._base.apply(self._tape.popleft())
        self._tape.append(step)

    def request(self, record: RequestRecord) -> None:
        """Keep the record of an ended request."""
        self._requests.append(record)

    def steps(self) -> tuple[StepRecord, ...]:
        with self._lock:
            return tuple(self._steps)

    def tape(self) -> Tape:
        """The frame before the oldest step and all steps since."""
        with self._lock:
            return Tape(self._base.copy(), tuple(self._tape))

    def since(self, step: int) -> tuple[Frame | None, tuple[StepRecord, ...], tuple[TapeStep, ...]]:
        """Records and tape after `step`, and the frame before them when the ring begins later than that.

        Whoever follows takes each record once: so the newest one is given when its times are there.
        """
        with self._lock:
            newer = sum(1 for _ in itertools.takewhile(lambda change: change.step > step, reversed(self._tape)))
            start = len(self._tape) - newer
            stop = len(self._tape) - (self._untimed is not None)
            records = tuple(itertools.islice(self._steps, start, stop))
            base = self._base.copy() if step < self._base.step else None
            return base, records, tuple(itertools.islice(self._tape, start, stop))

    def requests(self) -> tuple[RequestRecord, ...]:
        return tuple(self._requests)
