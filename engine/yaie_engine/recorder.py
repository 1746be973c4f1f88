"""The flight recorder: a ring of step records, and the records of ended requests. Imports no torch."""

from __future__ import annotations

from collections import deque

from .plan import StepPlan
from .record import RequestRecord
from .snapshot import BatchEntry, BlockEvents, StepRecord, StepTimes, TreeEvents

KEPT_REQUESTS = 256


class Recorder:
    """What happened, oldest first. Appended on the engine thread, copied by `steps()` and `requests()`."""

    def __init__(self, num_steps: int) -> None:
        self._steps: deque[StepRecord] = deque(maxlen=num_steps)
        self._requests: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)

    def step(self, plan: StepPlan, events: tuple[BlockEvents, TreeEvents], ms: StepTimes) -> None:
        """Record one finished step."""
        tokens = {"prefill": 0, "decode": 0}
        for entry in plan.batch:
            tokens[entry.kind] += entry.num_tokens
        batch = tuple(BatchEntry(entry.seq.label, entry.kind, entry.num_tokens) for entry in plan.batch)
        blocks, tree = events
        self._steps.append(
            StepRecord(plan.step, tokens["prefill"], tokens["decode"], batch, blocks, tree, tuple(plan.preempted), ms)
        )

    def request(self, record: RequestRecord) -> None:
        """Keep the record of an ended request."""
        self._requests.append(record)

    def steps(self) -> tuple[StepRecord, ...]:
        return tuple(self._steps)

    def requests(self) -> tuple[RequestRecord, ...]:
        return tuple(self._requests)
