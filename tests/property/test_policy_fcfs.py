"""The policy "fcfs": first come, first served within a priority, and low ones end while high ones keep coming."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.property.shadow import ShadowEngine, add
from yaie_engine.policy import AGED
from yaie_engine.sequence import Sequence

NEVER = 10**9


def engine_of(**kind: int) -> ShadowEngine:
    return ShadowEngine(64, 4, **{"budget": 32, "shared": 0, **kind})  # type: ignore[arg-type]


def shuffled_stream(engine: ShadowEngine, rng: random.Random, steps: int) -> list[Sequence]:
    """A step's worth of work and a half comes with each step, of all priorities in a shuffled order."""
    scheduler = engine.scheduler
    came: list[Sequence] = []
    for _ in range(steps):
        high = sum(seq.priority > 0 for seq in scheduler.waiting)
        wanted = [rng.choice([1, 2, 3]) for _ in range(scheduler.limits.max_num_seqs + 1 - high)]
        wanted += [0] * (rng.random() < 0.1)
        rng.shuffle(wanted)
        came += [add(engine, [rng.randrange(9000), len(engine.all)], rng.randrange(1, 4), priority=p) for p in wanted]
        engine.step()
    return came


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_request_of_a_shuffled_steady_stream_ends(seed: int, overlap: bool) -> None:
    """Each low one within the time in which it ages and those before it have had their turns."""
    rng = random.Random(seed)
    ageing = rng.choice([16, 32])
    engine = engine_of(seqs=rng.choice([1, 2, 3]), ageing=ageing, overlap=overlap)
    lows = [seq for seq in shuffled_stream(engine, rng, 160) if not seq.priority]
    turn = engine.scheduler.policy.pause + 4  # at most three steps to decode, and one to come in
    early = [seq for seq in lows if seq.queued_step < 100]
    assert len(early) > 4 and all(seq.state == "finished" for seq in early)
    for ahead, seq in enumerate(lows):
        if seq.admissions:
            assert seq.waited <= ageing + (ahead + 1) * turn
    assert max(seq.waited for seq in early) >= ageing, "the stream is dense enough to make them wait"
    engine.drain()
    assert {seq.state for seq in engine.all} == {"finished"}


def test_without_age_low_ones_of_such_a_stream_wait_for_ever() -> None:
    """What the test above would see."""
    engine = engine_of(seqs=2, ageing=NEVER)
    lows = [seq for seq in shuffled_stream(engine, random.Random(1), 160) if not seq.priority]
    assert len(lows) > 4 and {seq.state for seq in lows} == {"waiting"}
    engine.drain()


def test_one_that_is_preempted_again_and_again_gets_old_and_keeps_its_blocks() -> None:
    """Higher ones grow and take its blocks; nobody gives up a slot, but the aged one is no victim any more."""
    engine = ShadowEngine(6, 4, budget=32, seqs=2, shared=0, ageing=12)
    low = add(engine, [1, 2, 3], 12)
    for i in range(200):
        if sum(seq.priority > 0 and seq.live for seq in engine.all) < 2:
            add(engine, [100 + i, 5, 6], 14, priority=1)
        engine.step()
        if low.state == "finished":
            break
    assert low.state == "finished" and low.num_preemptions > 0 and low.rank == AGED
    engine.drain()


def test_equals_come_in_the_order_in_which_they_came_however_old_they_get() -> None:
    engine = engine_of(seqs=1, ageing=6)
    for i in range(12):
        add(engine, [i, 100 + i], 3)
    engine.drain()
    steps = [seq.admissions[0].step for seq in engine.all]
    assert all(a < b for a, b in itertools.pairwise(steps)) and engine.scheduler.num_preemptions == 0


def test_behind_one_that_is_due_and_does_not_fit_nobody_is_asked_whom_to_follow() -> None:
    engine = ShadowEngine(14, 4, budget=32, shared=4, chunk=4, ageing=2, watermark=13)
    leader, due = add(engine, list(range(40)), 1), add(engine, list(range(100, 140)), 1)
    follower = add(engine, [*range(38), 90, 91], 1)
    for _ in range(6):
        engine.step()
    assert leader.state == "running" and due.state == "waiting" and engine.scheduler.policy.due(due)
    assert follower.state == "waiting" and follower.patience is None
    engine.drain()
