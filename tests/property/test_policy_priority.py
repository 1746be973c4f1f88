"""The policy "priority": higher ones first, in place of running lower ones if need be; low ones end all the same."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.property.shadow import ShadowEngine, add
from yaie_engine.sequence import Sequence


def engine_of(total: int = 64, size: int = 4, **kind: Any) -> ShadowEngine:
    return ShadowEngine(total, size, **{"budget": 32, "policy": "priority", "shared": 0, **kind})


def ends(engine: ShadowEngine) -> list[Sequence]:
    """All sequences in the order in which they end."""
    order: list[Sequence] = []
    while not engine.scheduler.idle:
        engine.step()
        order += [seq for seq in engine.all if seq.state == "finished" and seq not in order]
    return order


def test_a_higher_one_takes_the_slot_of_the_last_admitted_of_the_lowest() -> None:
    engine = engine_of(seqs=3)
    middle, first, second = add(engine, [1], 9, priority=1), add(engine, [11], 9), add(engine, [21], 9)
    engine.step()
    high = add(engine, [31], 3, priority=2)
    plan = engine.step()
    assert plan.preempted == [second.label] and high.state == middle.state == first.state == "running"
    assert high in [entry.seq for entry in plan.batch], "in the step in which it is seen"
    assert ends(engine)[0] is high and second.num_output_tokens == 9


def test_equals_wait_for_each_other() -> None:
    engine = engine_of(seqs=2)
    for start in (1, 11, 21):
        add(engine, [start], 5, priority=4)
    engine.drain()
    assert engine.scheduler.num_preemptions == 0 and ends(engine) == []
    assert [seq.admissions[0].step for seq in engine.all] == [1, 1, 6]


def test_under_first_come_first_served_nobody_gives_up_a_slot() -> None:
    engine = engine_of(seqs=1, policy="fcfs")
    low = add(engine, [1], 5)
    engine.step()
    high = add(engine, [11], 1, priority=1)
    engine.step()
    assert low.state == "running" and high.state == "waiting"
    engine.drain()
    assert engine.scheduler.num_preemptions == 0


def test_a_higher_one_takes_blocks_from_as_few_as_will_do() -> None:
    engine = engine_of(total=8, seqs=8)
    lows = [add(engine, [10 * i + j for j in range(7)], 2) for i in range(4)]
    engine.step()
    assert engine.scheduler.pool.num_held == 8
    high = add(engine, list(range(100, 111)), 1, priority=1)
    plan = engine.step()
    assert plan.preempted == [lows[3].label, lows[2].label] and high.state == "finished"
    assert len(ends(engine)) == 5


def test_nobody_is_preempted_where_that_would_not_be_enough() -> None:
    engine = engine_of(total=8, seqs=8)
    holds, low = add(engine, list(range(22)), 3, priority=5), add(engine, [90, 91], 6)
    engine.step()
    high = add(engine, list(range(100, 116)), 1, priority=1)
    plan = engine.step()
    assert plan.preempted == [] and low.state == holds.state == "running" and high.state == "waiting"
    engine.drain()
    assert low.num_preemptions == 0


def test_nobody_passes_one_that_does_not_fit_though_somebody_would_make_way() -> None:
    """The blocks of a lower one are too few for the first; the second, lower than it, could do with them."""
    engine = engine_of(total=9, seqs=8)
    holds, low = add(engine, list(range(22)), 3, priority=5), add(engine, list(range(90, 95)), 3)
    engine.step()
    first, second = add(engine, list(range(100, 116)), 1, priority=2), add(engine, [60, 61], 1, priority=1)
    plan = engine.step()
    assert plan.preempted == [] and low.state == holds.state == "running"
    assert first.state == second.state == "waiting"
    order = ends(engine)
    assert order.index(first) < order.index(second)


def test_blocks_that_it_shares_with_others_count_for_it() -> None:
    """The prefix of 16 tokens is held by one who stays: four blocks that need not be found."""
    engine = engine_of(total=9, seqs=8)
    head = list(range(16))
    stays, low = add(engine, [*head, 99], 7, priority=5), add(engine, [80, 81, 82, 83, 84], 4)
    engine.step()
    assert engine.scheduler.pool.num_held == 7
    high = add(engine, [*head, 60, 61, 62, 63, 64, 65, 66, 67, 68], 1, priority=1)
    plan = engine.step()
    assert plan.preempted == [low.label] and stays.state == "running" and high.state == "finished"
    engine.drain()


def test_a_long_low_prompt_makes_way_when_only_the_budget_lacks() -> None:
    engine = engine_of(seqs=4, budget=8)
    decodes, long = add(engine, [5], 30), add(engine, list(range(100, 160)), 2)
    engine.step()
    engine.step()
    computed = long.computed
    high = add(engine, [1, 2, 3], 2, priority=1)
    plan = engine.step()
    assert plan.preempted == [long.label] and high.computed and decodes.state == "running"
    engine.step()
    assert high.num_output_tokens == 2 and long.admissions[-1].hit == computed, "its computed tokens are not lost"
    engine.drain()


def test_decodes_are_not_stopped_for_their_share_of_the_budget() -> None:
    engine = engine_of(seqs=8, budget=4)
    for i in range(4):
        add(engine, [10 * i], 5)
    engine.step()
    engine.step()
    high = add(engine, [90, 91], 1, priority=1)
    assert engine.step().preempted == [] and high.state == "waiting"
    engine.drain()


def test_whole_prompts_take_the_budget_of_a_lower_one() -> None:
    engine = engine_of(seqs=8, budget=8, chunked=False)
    add(engine, [90], 4)
    engine.step()
    low = add(engine, list(range(20)), 1)
    high = add(engine, list(range(50, 60)), 1, priority=1)
    engine.step()
    assert high.state == "finished" and low.state == "waiting"
    engine.drain()


@pytest.mark.parametrize("seqs", [1, 3])
def test_low_ones_end_while_high_ones_keep_coming(seqs: int) -> None:
    """For ever, without ageing; the aged one is not preempted again."""
    bound = {}
    for ageing in (12, 10**6):
        engine = engine_of(seqs=seqs, ageing=ageing)
        lows = [add(engine, [10 * i, 1, 2], 6) for i in range(3)]
        for i in range(120):
            while len(engine.scheduler.waiting) < 4 + 3:
                add(engine, [1000 + i, len(engine.all)], 3, priority=1 + i % 3)
            engine.step()
        bound[ageing] = [seq.state for seq in lows]
        for seq in list(engine.scheduler.waiting):
            if seq not in lows:
                engine.scheduler.finish(seq, "cancelled")
        engine.drain()
        assert {seq.state for seq in lows} == {"finished"}
    assert set(bound[12]) == {"finished"} and set(bound[10**6]) == {"waiting"}


def test_a_long_queue_that_gets_old_does_not_come_before_everybody() -> None:
    """One of it is due, then a pause passes: high ones are served in between."""
    engine = engine_of(seqs=1, ageing=10)
    lows = [add(engine, [10 * i, 1], 2) for i in range(5)]
    for i in range(80):
        while len(engine.scheduler.waiting) < 7:
            add(engine, [1000 + i, len(engine.all)], 2, priority=1)
        engine.step()
    steps = [seq.admissions[0].step for seq in lows]
    assert steps[0] in (11, 12) and all(10 <= b - a <= 12 for a, b in itertools.pairwise(steps))
    engine.drain()


def test_behind_an_aged_one_that_does_not_fit_higher_ones_still_take_the_places_of_lower_ones() -> None:
    """And leave it the room that becomes free: no inversion, no starvation."""
    engine = engine_of(total=12, seqs=3, ageing=4)
    low, middle = add(engine, [0, 1, 2], 37), add(engine, list(range(40, 58)), 8, priority=2)
    engine.step()
    aged = add(engine, list(range(100, 132)), 5)
    for _ in range(5):
        engine.step()
    assert aged.state == "waiting" and engine.scheduler.policy.due(aged)
    high, small = add(engine, [90, 91], 2, priority=3), add(engine, [70], 1)
    plan = engine.step()
    assert plan.preempted == [low.label] and high.state == "running" and aged.state == small.state == "waiting"
    order = ends(engine)
    assert order.index(aged) < order.index(small)
    assert order.index(aged) < order.index(low) and middle.num_preemptions == 0


def test_a_guess_is_dropped_when_a_higher_one_is_about_to_take_a_slot() -> None:
    engine = engine_of(seqs=2, overlap=True)
    for start in (1, 11):
        add(engine, [start], 12)
    for _ in range(4):
        engine.step()
    assert engine.guesses["right"] > 0
    high = add(engine, [31], 2, priority=1)
    before = engine.guesses["wrong"]
    assert len(engine.step().preempted) == 1 and high.state == "running" and engine.guesses["wrong"] == before + 1
    engine.drain()


@pytest.mark.parametrize("seed", range(4))
def test_a_high_one_is_in_at_once_whatever_low_ones_do(seed: int) -> None:
    """As long as it fits beside its betters, it never waits for a lower one."""
    rng = random.Random(seed)
    engine = engine_of(total=24, seqs=4, budget=24, overlap=bool(seed % 2))
    for _ in range(60):
        for _ in range(rng.randrange(3)):
            add(engine, [rng.randrange(50) for _ in range(rng.randrange(1, 20))], rng.randrange(1, 9))
        high = None
        if rng.random() < 0.3:
            high = add(engine, [rng.randrange(100, 150) for _ in range(6)], 1, priority=1)
        plan = engine.step()
        if high is not None and not plan.preempted:
            assert high.state == "finished"
        elif high is not None:  # the step began with a preemption for blocks, which admits nobody
            while high.state != "finished":
                assert engine.step().step < plan.step + 4
    engine.drain()
    assert engine.scheduler.num_preemptions > 0


def test_behind_one_that_is_due_others_take_no_more_than_they_free() -> None:
    """It has no slot, and nobody whose place it may take: all that is free by now stays for it."""
    for tokens, passes in ((13, False), (3, True)):
        engine = engine_of(total=9, seqs=1, ageing=2)
        low, due = add(engine, [10, 11, 12, 13, 14, 15, 16, 17], 20), add(engine, [50], 1)
        for _ in range(3):
            engine.step()
        high = add(engine, list(range(100, 100 + tokens)), 1, priority=1)
        assert (engine.step().preempted == [low.label]) is passes and due.state == "waiting"
        assert (high.state == "finished") is passes
        engine.drain()
