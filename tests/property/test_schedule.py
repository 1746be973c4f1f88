"""The scheduler, one decision at a time; each test is named after what must not go wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.property.shadow import ShadowEngine, add, run
from yaie_engine.errors import InvariantError
from yaie_engine.host_cache import HostCache
from yaie_engine.look_ahead import look_ahead
from yaie_engine.plan import Guess
from yaie_engine.policy import Policy
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits


def engine_of(total: int = 64, **kind: Any) -> ShadowEngine:
    return ShadowEngine(total, 4, **{"budget": 32, "seqs": 8, "shared": 0, **kind})


def by_priority(total: int = 64, **kind: Any) -> ShadowEngine:
    return engine_of(total, **{"policy": "priority", **kind})


def sequence(seq_id: int, tokens: list[int] | None = None, **kind: Any) -> Sequence:
    tokens = [seq_id, 1, 2] if tokens is None else tokens
    return Sequence(seq_id, f"r{seq_id}", tokens, len(tokens), 9, **kind)


def scheduler_of(*seqs: Sequence, budget: int = 16, **limits: Any) -> Scheduler:
    scheduler = Scheduler(32, 4, Limits(budget, watermark=0, shared_prefill=0, **limits))
    for seq in seqs:
        scheduler.add(seq)
    return scheduler


# ---- the start


def test_what_is_not_said_has_a_default() -> None:
    scheduler = Scheduler(300, 4)
    assert scheduler.limits == Limits() and type(scheduler.policy) is Policy and scheduler.host.pool.total == 0
    assert [Scheduler(total, 4).watermark for total in (1, 99, 199, 200, 300)] == [1, 1, 1, 2, 3]
    assert Scheduler(300, 4, Limits(watermark=0)).watermark == 0
    host = HostCache(4, 4)
    assert Scheduler(8, 4, host=host).host is host


def test_room_is_what_fits() -> None:
    scheduler = Scheduler(3, 4)
    for prompt in (1, 5, 12, 13):
        room = scheduler.room(prompt)
        assert scheduler.fits(prompt, room)[0] <= 3 < scheduler.fits(prompt, room + 1)[0]
    assert scheduler.room(12) == 1


# ---- who runs


def test_a_prompt_of_which_two_tokens_are_left_is_no_decode() -> None:
    engine = engine_of(budget=4)
    older, decode = add(engine, list(range(5)), 1), add(engine, [90], 9)
    engine.scheduler.limits = replace(engine.scheduler.limits, long_prefill_token_threshold=3)
    engine.step()
    assert older.remaining == 2 and decode.remaining == 1
    engine.scheduler.limits = replace(engine.scheduler.limits, max_num_batched_tokens=1)
    assert [entry.seq for entry in engine.step().batch] == [decode]
    engine.drain()


def test_who_was_preempted_for_another_stops_nobody_behind_it() -> None:
    """And a victim that was not planned yet gives no budget back."""
    engine = engine_of(total=3, budget=3)
    high, low = add(engine, [1, 2], 6, priority=2), add(engine, [11], 9)
    engine.step()
    prompt = add(engine, list(range(20, 28)), 1, priority=1)
    plans = [engine.step() for _ in range(3)]
    assert [len(plan.batch) for plan in plans] == [3, 3, 2] and plans[-1].preempted == [low.label]
    assert [(entry.seq, entry.num_tokens) for entry in plans[-1].batch] == [(high, 1), (prompt, 2)]
    engine.drain()


def test_a_full_house_admits_nobody_and_an_empty_queue_neither() -> None:
    seqs = [sequence(i) for i in range(3)]
    scheduler = scheduler_of(*seqs[:2], max_num_seqs=2)
    assert scheduler.admits
    scheduler.complete(scheduler.schedule(), [5, 5])
    assert not scheduler.admits
    scheduler.add(seqs[2])
    assert not scheduler.admits
    scheduler.finish(seqs[0], "finished")
    assert scheduler.admits


def test_every_preemption_is_counted_once() -> None:
    engine = engine_of()
    seqs = [add(engine, [10 * i, 1], 9) for i in range(2)]
    for turn in range(1, 4):
        engine.step()
        for seq in seqs:
            engine.scheduler.preempt(seq)
        assert [seq.num_preemptions for seq in seqs] == [turn, turn]
        assert engine.scheduler.num_preemptions == 2 * turn
    assert engine.step().preempted == [seq.label for seq in seqs], "since the last step that ran something"
    engine.drain()


@pytest.mark.parametrize("budget", [1, 8])
def test_alone_and_too_large_with_its_match_it_starts_in_its_first_step(budget: int) -> None:
    engine = engine_of(total=2, budget=budget)
    run(engine, [1, 2, 3, 4, 5, 6])
    seq = add(engine, [1, 2, 3, 4, 5, 9, 9], 2)
    assert engine.step().batch and seq.num_cached_tokens == 5
    engine.drain()


# ---- who takes whose place


def test_a_higher_one_takes_the_slot_of_a_decode_though_the_budget_is_used_up() -> None:
    engine = by_priority(seqs=2, budget=2)
    lows = [add(engine, [10 * i], 9) for i in range(2)]
    engine.step()
    engine.step()
    high = add(engine, [90], 1, priority=1)
    assert engine.step().preempted == [lows[1].label] and high.state == "finished"
    engine.drain()


def test_a_prompt_that_has_the_whole_budget_makes_way_even_of_two_tokens() -> None:
    for budget in (2, 8):
        engine = by_priority(budget=budget)
        low = add(engine, list(range(20)), 1)
        engine.step()
        high = add(engine, [90, 91], 1, priority=1)
        assert engine.step().preempted == [low.label] and high.state == "finished"
        engine.drain()


def test_nobody_loses_a_slot_for_one_that_the_budget_has_no_token_for() -> None:
    engine = by_priority(seqs=2, budget=8, chunk=4)
    first, low = add(engine, list(range(40)), 1, priority=5), add(engine, list(range(50, 70)), 9)
    engine.step()
    assert first.computed == low.computed == 4
    engine.scheduler.limits = replace(engine.scheduler.limits, long_prefill_token_threshold=0)
    high = add(engine, [90, 91], 1, priority=1)
    plan = engine.step()
    assert plan.preempted == [] and [entry.seq for entry in plan.batch] == [first]
    assert high.state == "waiting" and low.state == "running"
    engine.drain()


@pytest.mark.parametrize(("watermark", "room"), [(0, True), (1, True), (2, False)])
def test_places_are_taken_only_where_the_watermark_stays(watermark: int, room: bool) -> None:
    engine = by_priority(total=9, watermark=watermark)
    add(engine, list(range(50, 55)), 3, priority=5)
    low = add(engine, list(range(60, 69)), 3)
    engine.step()
    assert engine.scheduler.pool.num_held == 5
    high = add(engine, list(range(100, 120)), 1, priority=1)
    assert (engine.step().preempted == [low.label]) is room and (high.state == "finished") is room
    engine.drain()


def test_of_who_takes_all_places_no_watermark_is_asked() -> None:
    engine = by_priority(total=6, watermark=2)
    low = add(engine, list(range(60, 69)), 3)
    engine.step()
    high = add(engine, list(range(100, 120)), 1, priority=1)
    assert engine.step().preempted == [low.label] and high.state == "finished"
    engine.drain()


def test_two_higher_ones_take_two_places_in_one_step() -> None:
    engine = by_priority(seqs=2)
    for i in range(2):
        add(engine, [10 * i], 9)
    engine.step()
    highs = [add(engine, [90 + i], 2, priority=1) for i in range(2)]
    assert len(engine.step().preempted) == 2 and {seq.state for seq in highs} == {"running"}
    engine.drain()


def test_nobody_passes_one_that_does_not_fit() -> None:
    """Not even into the place of a lower one."""
    engine = by_priority(total=8)
    add(engine, list(range(22)), 3, priority=9)
    low = add(engine, [40], 6)
    engine.step()
    large, small = add(engine, list(range(100, 116)), 1, priority=3), add(engine, [80], 1, priority=2)
    assert engine.step().preempted == [] and {large.state, small.state} == {"waiting"} and low.state == "running"
    engine.drain()


# ---- who follows whom


def test_with_one_token_of_budget_left_a_follower_waits_and_with_none_nobody_asks() -> None:
    for budget, patience in ((8, True), (7, False)):
        engine = engine_of(shared=4, chunk=7, budget=budget)
        leader, follower = add(engine, list(range(20)), 1), add(engine, [*range(18), 90, 91], 1)
        engine.step()
        assert leader.computed == 7 and follower.state == "waiting" and (follower.patience is not None) is patience
        engine.drain()


def test_the_blocks_of_all_followers_are_kept() -> None:
    """Three followers of a prompt of 3 blocks: each needs 3; another may pass where 9 stay, not where 7 do."""
    for total, passes in ((14, True), (12, False)):
        engine = engine_of(total=total, shared=4, budget=40)
        seqs = [add(engine, [*range(9), 90 + i], 1) for i in range(4)]
        other = add(engine, [70], 2)
        engine.step()
        assert [seq.state for seq in seqs[1:]] == ["waiting"] * 3 and (other.state == "running") is passes
        engine.drain()


# ---- after the forward


def test_copies_that_ran_are_in_the_record() -> None:
    engine = engine_of()
    reader = add(engine, [1, 2, 3, 4, 5, 6], 9)
    engine.step()
    add(engine, [1, 2, 3, 4, 5, 9], 2)
    plan = engine.step()
    assert len(plan.copies) == 1 and engine.recorder.steps()[-1].blocks.copied == tuple(plan.copies)
    engine.drain()
    assert reader.state == "finished"


def test_one_that_ended_while_it_ran_keeps_nobody_behind_it_from_going_on() -> None:
    engine = engine_of()
    seqs = [add(engine, [10 * i], 9) for i in range(3)]
    engine.step()
    engine.step(ends=0)
    assert [seq.state for seq in seqs] == ["failed", "running", "running"]
    assert [seq.num_output_tokens for seq in seqs] == [1, 2, 2] and [seq.computed for seq in seqs[1:]] == [2, 2]
    engine.drain()


def test_a_row_without_a_token_publishes_nothing_and_the_next_one_does() -> None:
    seqs = [sequence(i) for i in range(2)]
    scheduler = scheduler_of(*seqs)
    scheduler.complete(scheduler.schedule(), [None, 7])
    assert [(seq.num_tokens, seq.computed) for seq in seqs] == [(3, 0), (4, 3)]
    assert seqs[0].num_computed_total == 3, "it was computed all the same"
    assert scheduler.tree.find([1, 1, 2])[1] == 3 and scheduler.tree.find([0, 1, 2])[1] == 0


# ---- a step that did not fit into memory


def test_the_budget_halves_and_grows_back_by_one() -> None:
    scheduler = scheduler_of(sequence(0, list(range(40))), budget=16)
    plan = scheduler.schedule()
    assert plan.num_tokens == scheduler.budget == scheduler.next_budget == 16
    assert scheduler.shrink(plan) == [] and scheduler.budget == 8 and scheduler.next_budget == 9
    scheduler.abort(plan)
    sizes = []
    for _ in range(3):
        plan = scheduler.schedule()
        sizes.append(plan.num_tokens)
        scheduler.complete(plan, [])
    assert sizes == [8, 9, 10] and scheduler.budget == 11
    scheduler._cut = 1
    assert scheduler.next_budget == 16
    scheduler._cut = 2
    assert scheduler.next_budget == 15


def test_a_budget_halves_down_to_one_token_and_then_somebody_pays() -> None:
    scheduler = scheduler_of(sequence(0, list(range(40))), budget=7)
    sizes = []
    for _ in range(3):
        plan = scheduler.schedule()
        sizes.append(plan.num_tokens)
        paying = scheduler.shrink(plan)
        scheduler.abort(plan)
    assert sizes == [7, 3, 1] and [seq.seq_id for seq in paying] == [0]


def test_who_pays_has_the_most_tokens() -> None:
    """Whole prompts: no budget makes this step smaller."""
    seqs = [sequence(0, [1]), sequence(1, list(range(100, 120))), sequence(2, [2])]
    scheduler = scheduler_of(*seqs, budget=8, chunked_prefill=False)
    plan = scheduler.schedule()
    assert plan.num_tokens > 8
    assert scheduler.shrink(plan) == [seqs[1]] and scheduler.budget == 8


# ---- a step that failed, and a new start


def test_what_an_aborted_step_did_not_tell_the_next_one_tells() -> None:
    engine = engine_of()
    gone = run(engine, [1, 2])
    seq = add(engine, [9, 9, 9], 2)
    plan = engine.scheduler.schedule()
    assert plan.released == [gone.seq_id]
    engine.scheduler.abort(plan)
    assert engine.scheduler._planned == {}
    assert engine.step().released == [gone.seq_id, seq.seq_id]
    engine.drain()


def test_an_empty_step_that_is_aborted_tells_nothing_twice() -> None:
    engine = engine_of()
    gone = run(engine, [1, 2])
    engine.scheduler.abort(engine.scheduler.schedule())
    add(engine, [9], 1)
    assert engine.step().released == [gone.seq_id]


def test_after_a_new_start_all_but_one_wait_as_if_they_had_just_come() -> None:
    seqs = [sequence(i, private=i < 3, namespace="own" if i < 3 else "") for i in range(5)]
    scheduler = scheduler_of(*seqs[:3], max_num_seqs=3)
    scheduler.complete(scheduler.schedule(), [5, 5, 5])
    scheduler.add(seqs[3])
    scheduler.complete(scheduler.schedule(), [5, 5, 5])
    scheduler.add(seqs[4])
    pool, tree, step = scheduler.pool, scheduler.tree, scheduler.step
    scheduler.schedule()
    scheduler.rebuild(without=seqs[1])
    assert scheduler.running == [] and scheduler.waiting == [seqs[0], seqs[2], seqs[3], seqs[4]]
    assert [(seq.state, seq.block_table, seq.computed, seq.valid) for seq in scheduler.waiting] == [
        ("waiting", [], 0, 0)
    ] * 4
    assert [seq.queued_step for seq in scheduler.waiting] == [step + 1, step + 1, 1, 2]
    assert sorted(scheduler._released) == [0, 2, 3, 4]
    assert scheduler.private == {"own": 2} and scheduler._planned == scheduler._copies == {}
    assert scheduler.pool is not pool and scheduler.tree is not tree and scheduler.pool.num_free == pool.total
    assert scheduler.pool.changes is pool.changes, "the record goes on"


def test_a_new_start_empties_the_host_too() -> None:
    engine = engine_of(total=8, host=8, swaps=True)
    seq = add(engine, [1, 2, 3, 4, 5], 6)
    engine.step()
    engine.scheduler.preempt(seq)
    assert seq.swapped and engine.scheduler.host.pool.num_held
    engine.scheduler.rebuild()
    assert not seq.swapped and engine.scheduler.host.pool.num_free == 8
    engine.drain()
    assert seq.state == "finished"


def test_what_only_one_request_may_see_leaves_the_host_with_it() -> None:
    engine = engine_of(total=8, host=8, swaps=True)
    (seq,) = engine.fork([1, 2, 3, 4, 5], 1, [lambda tokens: tokens[-1] + 1], True, max_tokens=6)
    engine.step()
    engine.scheduler.preempt(seq)
    assert engine.scheduler.host.pool.num_free < 8
    engine.scheduler.finish(seq, "cancelled")
    assert engine.scheduler.host.pool.num_free == 8 and engine.scheduler.pool.num_free == 8


# ---- a step that was guessed


def test_a_guess_over_other_blocks_than_the_sequence_has_is_an_error() -> None:
    seq = sequence(0, [1, 2, 3, 4])
    scheduler = scheduler_of(seq)
    plan = scheduler.schedule()
    guess = look_ahead(scheduler, plan)
    assert guess is not None and len(guess.order[0].table) == 2
    scheduler.complete(plan, [5])

    def instead(table: list[int]) -> Guess:
        return replace(guess, order=[replace(guess.order[0], guessed_table=table)])

    first = seq.block_table[0]
    seq.block_table = [first, 9]
    for table in ([9], [first, 8]):
        with pytest.raises(InvariantError, match="blocks that it does not have"):
            scheduler.take(instead(table))
    scheduler.take(instead([first, 9]))
    assert scheduler._planned == {seq: 1}
