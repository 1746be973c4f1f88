"""What is recorded of a step is given to those who follow once, and complete."""

from __future__ import annotations

import threading

import pytest

from yaie_engine.changes import Changes
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.recorder import Recorder
from yaie_engine.sequence import Sequence
from yaie_engine.snapshot import StepRecord, StepTimes


def plan(step: int) -> StepPlan:
    seq = Sequence(1, "a", [1, 2], 2, 9)
    return StepPlan(step, [ScheduledSequence(seq, 0, 2, 0, "prefill", samples=True)])


def write(recorder: Recorder, step: int, timed: bool = True) -> None:
    recorder.step(plan(step), [], Changes())
    if timed:
        recorder.timed(step, StepTimes(publish=float(step)))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_step_is_given_once_its_times_are_known(size: int) -> None:
    """At any step of any ring, whether one asks for all or for what is new."""
    recorder, followed, newest = Recorder(size), list[StepRecord](), 0
    for step in range(1, 7):
        write(recorder, step, timed=False)
        for since in range(step + 1):
            _, records, changes = recorder.since(since)
            assert [record.step for record in records] == [change.step for change in changes]
            assert all(since < record.step < step and record.ms.publish == record.step for record in records)
        assert recorder.steps()[-1].step == step, "a snapshot is made between steps"
        recorder.timed(step, StepTimes(publish=float(step)))
        _, records, changes = recorder.since(newest)
        assert len(records) == len(changes)
        followed += records
        newest = followed[-1].step
    assert [record.step for record in followed] == list(range(1, 7))
    assert all(record.ms.publish == record.step for record in followed)


def test_times_that_never_come_hold_up_only_their_own_step() -> None:
    recorder = Recorder(8)
    write(recorder, 1, timed=False)
    write(recorder, 2)
    recorder.timed(1, StepTimes(publish=99.0))
    assert [record.ms.publish for record in recorder.since(0)[1]] == [0.0, 2.0]


def test_times_are_written_while_nobody_reads() -> None:
    """Whoever reads holds the lock for as long as it takes to copy; a copy never meets a change."""
    recorder = Recorder(8)
    write(recorder, 1, timed=False)
    writer = threading.Thread(target=recorder.timed, args=(1, StepTimes(publish=1.0)))
    with recorder._lock:
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
    writer.join(10)
    assert not writer.is_alive() and recorder.since(0)[1][0].ms.publish == 1.0
