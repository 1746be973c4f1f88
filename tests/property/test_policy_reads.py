"""Who waits for what is read has slot and blocks left, holds up nobody else, and waits for room for a while only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.property.unchecked import Unchecked
from yaie_engine.sequence import Sequence
from yaie_engine.turns import resume

PROMPT = list(range(16))  # four blocks


@dataclass
class Shelf:
    """Something to read, which never comes by itself."""

    there: bool = True
    patient: bool = True
    begun: list[int] = field(default_factory=list)

    def wanted(self) -> bool:
        return self.there

    def begin(self) -> None:
        self.begun.append(1)


def reader(engine: Unchecked, shelf: Shelf, **kind: Any) -> Sequence:
    return engine.add(PROMPT, 2, source=shelf, **kind)


def other(engine: Unchecked, blocks: int, tokens: int = 2, **kind: Any) -> Sequence:
    """A prompt of so many blocks that nobody else has."""
    start = 100 * (1 + len(engine.all))
    return engine.add(list(range(start, start + 4 * blocks)), tokens, **kind)


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "priority", "fair"])
def test_others_pass_and_leave_its_blocks(policy: str) -> None:
    engine, shelf = Unchecked(11, policy=policy), Shelf()
    first, small, large = reader(engine, shelf), other(engine, 6, 5), other(engine, 2)
    engine.step()
    assert shelf.begun and (first.state, small.state, large.state) == ("waiting", "running", "waiting")
    resume(engine.scheduler, first)
    engine.step()
    assert first.state == "running" and first.admitted == 2
    engine.drain()


@pytest.mark.parametrize("slots", [1, 2])
def test_others_leave_its_slot(slots: int) -> None:
    engine = Unchecked(32, max_num_seqs=slots)
    first, second = reader(engine, Shelf()), other(engine, 1)
    engine.step()
    assert (first.state, second.state) == ("waiting", "running" if slots == 2 else "waiting")
    assert engine.scheduler.idle is (slots == 1)
    resume(engine.scheduler, first)
    engine.drain()
    assert {seq.state for seq in engine.all} == {"finished"}


@pytest.mark.parametrize("event", ["it came", "it is cancelled", "another comes"])
def test_nothing_runs_until_something_happens(event: str) -> None:
    """No step is made in vain while all wait, and what is cached stays."""
    engine = Unchecked(12)
    cached = other(engine, 3)
    engine.drain()
    first, large = reader(engine, Shelf()), other(engine, 9)
    for _ in range(3):
        assert not engine.step().batch and engine.scheduler.idle
    assert engine.scheduler.tree.find(cached.token_ids)[1] >= 12
    if event == "it came":
        resume(engine.scheduler, first)
    elif event == "it is cancelled":
        engine.scheduler.finish(first, "cancelled")
    else:
        small = other(engine, 1, priority=1)
    assert not engine.scheduler.idle and engine.step().batch
    assert (small if event == "another comes" else first if event == "it came" else large).state == "running"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("patient", [True, False])
def test_room_is_waited_for_as_long_as_it_is_patient(policy: str, patient: bool) -> None:
    engine, shelf = Unchecked(10, policy=policy, long_prefill_token_threshold=4), Shelf(patient=patient)
    long = other(engine, 6, 6)
    while long.computed < long.num_prompt_tokens:
        engine.step()
    first, small = reader(engine, shelf), other(engine, 1)
    engine.step()
    waits = patient and policy == "fcfs"
    states = ("waiting", "waiting") if waits else ("running", "running")
    assert (first.state, small.state) == states and not shelf.begun
    for _ in range(8):
        engine.step()
    assert bool(shelf.begun) is waits
    if waits:
        assert first.reading == 4 and small.state == "finished"
        resume(engine.scheduler, first)
    engine.drain()
    assert {seq.state for seq in engine.all} == {"finished"}


def test_of_nothing_there_is_nothing_to_wait_for() -> None:
    engine, shelf = Unchecked(8), Shelf(there=False)
    first = reader(engine, shelf)
    assert engine.step().batch and first.state == "running" and not shelf.begun and first.source is None


def test_a_slot_that_can_be_taken_is_a_turn_and_another_is_none() -> None:
    engine, shelves = Unchecked(32, policy="priority", max_num_seqs=1), [Shelf(), Shelf()]
    low = other(engine, 1, 9)
    engine.step()
    high, equal = reader(engine, shelves[0], priority=5), reader(engine, shelves[1])
    engine.step()
    assert shelves[0].begun and not shelves[1].begun and low.state == "running"
    resume(engine.scheduler, high)
    engine.step()
    assert (high.state, low.state, equal.state) == ("running", "waiting", "waiting") and not shelves[1].begun


def test_a_held_match_needs_no_room() -> None:
    """Whose start runs already takes only the rest."""
    engine, shelf = Unchecked(10), Shelf()
    engine.add(PROMPT, 9)
    engine.step()
    engine.step()
    first = engine.add([*PROMPT, *range(50, 58)], 2, source=shelf)
    engine.step()
    assert shelf.begun and first.reading == 2
