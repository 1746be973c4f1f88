"""The rules of blocks, tree and schedule, one by one, on the shadow KV."""

from __future__ import annotations

import pytest

from tests.property.shadow import ShadowEngine, add, count_up, run, total_tokens
from yaie_engine.sequence import Sequence

# ---- reuse


@pytest.mark.parametrize(("length", "cached"), [(1, 0), (2, 1), (3, 2), (7, 6), (8, 7), (9, 8)])
def test_full_hit_counts_all_but_the_last_token(length: int, cached: int) -> None:
    engine = ShadowEngine(16, 4)
    prompt = list(range(100, 100 + length))
    assert run(engine, prompt).num_cached_tokens == 0
    for _ in range(2):
        assert run(engine, prompt).num_cached_tokens == cached


def test_full_hit_writes_nothing() -> None:
    engine = ShadowEngine(16, 4)
    prompt = list(range(8))
    run(engine, prompt)
    seq = add(engine, prompt)
    plan = engine.scheduler.schedule()
    entry = plan.batch[0]
    assert (entry.start, entry.stop, entry.first_write) == (7, 8, 8)
    assert entry.kind == "prefill" and entry.samples and not plan.copies
    assert len(seq.block_table) == 2
    engine.scheduler.abort(plan)


def test_match_inside_a_block_costs_one_copy_while_somebody_else_reads_on() -> None:
    engine = ShadowEngine(16, 4)
    run(engine, [1, 2, 3, 4, 5, 6, 7, 8])
    seq = add(engine, [1, 2, 3, 4, 5, 6, 90, 91])
    plan = engine.step()
    assert len(plan.copies) == 1 and seq.num_cached_tokens == 6
    assert plan.batch[0].num_tokens == 2, "only what is not known is computed"


def test_chat_turn_costs_no_copy() -> None:
    engine = ShadowEngine(64, 4, chunk=5)
    ids, known = [1, 2, 3], None
    for turn in range(6):
        seq = add(engine, ids, 5)
        assert engine.step().copies == []
        engine.drain()
        assert known is None or seq.num_cached_tokens == known
        ids, known = [*seq.token_ids, 500 + turn, 600 + turn], len(seq.token_ids) - 1


def test_two_extend_one_tail_and_one_of_them_copies() -> None:
    engine = ShadowEngine(16, 4)
    run(engine, [1, 2, 3, 4, 5])
    for tail in (60, 70):
        add(engine, [1, 2, 3, 4, 5, tail], 6)
    assert len(engine.step().copies) == 1
    engine.drain()


def test_running_sequences_share_what_is_computed() -> None:
    engine = ShadowEngine(16, 4, budget=32)
    first = add(engine, list(range(9)), 8)
    engine.step()
    second = add(engine, [*range(8), 99], 4)
    engine.step()
    assert first.state == "running" and second.num_cached_tokens == 8
    assert first.block_table[:2] == second.block_table[:2]
    assert engine.scheduler.pool.num_held == len({*first.block_table, *second.block_table})


def test_duplicates_of_two_equal_prompts_are_freed() -> None:
    engine = ShadowEngine(16, 4, budget=32)
    twins = [add(engine, list(range(9)), 2) for _ in range(2)]
    plan = engine.step()
    assert len(plan.batch) == 2 and all(seq.num_cached_tokens == 0 for seq in twins)
    assert twins[0].block_table[:2] == twins[1].block_table[:2]
    engine.drain()
    assert engine.scheduler.pool.num_cached == 3


def test_fork_shares_the_prompt_and_waits_for_it() -> None:
    engine = ShadowEngine(32, 4, chunk=4, budget=16)
    choices = engine.fork(list(range(10)), 3, [count_up] * 3, False, max_tokens=4)
    plans = [engine.step() for _ in range(3)]
    assert [len(plan.batch) for plan in plans] == [1, 1, 1], "nobody computes the prompt twice"
    engine.step()
    assert [seq.num_cached_tokens for seq in choices] == [0, 9, 9]
    assert len({seq.block_table[0] for seq in choices}) == 1
    engine.drain()


def test_private_namespaces_share_inside_and_leave_nothing() -> None:
    engine = ShadowEngine(32, 4)
    choices = engine.fork(list(range(8)), 2, [count_up] * 2, True, max_tokens=3)
    engine.drain()
    assert choices[1].num_cached_tokens == 7
    assert engine.scheduler.pool.num_free == 32 and list(engine.scheduler.tree.roots) == [""]


def test_salts_never_meet() -> None:
    engine = ShadowEngine(32, 4)
    prompt = list(range(8))
    run(engine, prompt, namespace="a")
    assert run(engine, prompt, namespace="b").num_cached_tokens == 0
    assert run(engine, prompt).num_cached_tokens == 0
    assert run(engine, prompt, namespace="a").num_cached_tokens == 7
    engine.scheduler.tree.clear()
    assert list(engine.scheduler.tree.roots) == [""] and engine.scheduler.pool.num_free == 32


def test_without_reading_the_cache_everything_is_computed() -> None:
    engine = ShadowEngine(16, 4)
    run(engine, list(range(8)))
    seq = run(engine, list(range(8)), read_cache=False)
    assert seq.num_cached_tokens == 0 and seq.num_computed_total == 8
    assert total_tokens(engine.scheduler.tree) == 8, "the tree's blocks win"


# ---- eviction


def test_least_recently_used_leaf_goes_first_and_a_match_refreshes_it() -> None:
    engine = ShadowEngine(3, 4)
    for start in (10, 20, 30):
        run(engine, [start, start + 1, start + 2, start + 3])
    run(engine, [10, 11, 12, 13])
    run(engine, [40, 41, 42])
    tree = engine.scheduler.tree
    assert set(tree.root.children) == {10, 30, 40}


def test_a_request_that_waits_keeps_its_prefix_recent() -> None:
    engine = ShadowEngine(4, 4, budget=32)
    run(engine, [1, 2, 3, 4])
    run(engine, [50, 51, 52, 53])
    grows = add(engine, [90, 91, 92], 10)
    add(engine, [1, 2, 3, 4, *range(60, 70)])
    while len(grows.block_table) < 3:
        engine.step()
    assert set(engine.scheduler.tree.root.children) == {1, 90}


def test_a_parent_is_never_older_than_a_child_it_lost() -> None:
    engine = ShadowEngine(16, 4)
    run(engine, [1, 2, 3, 4, 9])
    run(engine, [1, 2, 3, 4, 5, 6], 8)
    (parent,) = engine.scheduler.tree.root.children.values()
    newest = max(child.used for child in parent.children.values())
    while parent.children:
        assert engine.scheduler.tree.evict_one()
    assert parent.used >= newest


def test_the_last_child_leaves_its_parent_the_tail() -> None:
    engine = ShadowEngine(8, 4)
    run(engine, [1, 2, 3, 4, 5, 6])
    run(engine, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    run(engine, [1, 2, 3, 4, 5, 7])
    tree, pool = engine.scheduler.tree, engine.scheduler.pool
    while total_tokens(tree) > 5:
        assert tree.evict_one()
        engine.check()
    seq = add(engine, [1, 2, 3, 4, 5, 8])
    engine.step()
    assert seq.num_cached_tokens == 5
    assert pool.num_free + pool.num_held + pool.num_cached == 8


def test_held_blocks_are_not_evicted() -> None:
    engine = ShadowEngine(4, 4, budget=32)
    seq = add(engine, list(range(8)), 8)
    engine.step()
    assert not engine.scheduler.tree.evict_one()
    assert engine.scheduler.tree.clear() == 0 and len(seq.block_table) == 2


def test_reset_frees_all_that_nobody_holds() -> None:
    engine = ShadowEngine(16, 4)
    for start in range(0, 40, 10):
        run(engine, list(range(start, start + 7)), 3)
    assert engine.scheduler.pool.num_cached > 0
    engine.scheduler.tree.clear()
    assert engine.scheduler.pool.num_free == 16 and total_tokens(engine.scheduler.tree) == 0


# ---- schedule


def test_decodes_come_first_and_share_the_step_with_prefill_chunks() -> None:
    engine = ShadowEngine(64, 4, budget=6, chunk=4)
    add(engine, [1, 2], 10)
    engine.step()
    add(engine, list(range(50, 70)), 1)
    plan = engine.step()
    assert [(entry.kind, entry.num_tokens) for entry in plan.batch] == [("decode", 1), ("prefill", 4)]
    add(engine, list(range(80, 99)), 1)
    plan = engine.step()
    assert [(entry.kind, entry.num_tokens) for entry in plan.batch] == [("decode", 1), ("prefill", 4), ("prefill", 1)]


def test_a_decode_does_not_wait_behind_an_older_prefill() -> None:
    engine = ShadowEngine(64, 4, budget=4)
    long = add(engine, list(range(40)), 1)
    engine.step()
    engine.scheduler.limits = engine.scheduler.limits.__class__(8, 4, 4, True, 0)
    short = add(engine, [90], 9)
    engine.step()
    assert long.state == short.state == "running"
    engine.scheduler.limits = engine.scheduler.limits.__class__(4, 4, 0, True, 0)
    assert [entry.seq for entry in engine.step().batch] == [short, long]


def test_first_come_first_served_within_a_priority() -> None:
    engine = ShadowEngine(64, 4, budget=64, seqs=1)
    order: list[Sequence] = []
    low = [add(engine, [10 * i, 1], 1) for i in range(3)]
    high = add(engine, [77, 1], 1, priority=5)
    while not engine.scheduler.idle:
        order += [entry.seq for entry in engine.step().batch]
    assert order == [high, *low]


def test_at_most_max_num_seqs_run() -> None:
    engine = ShadowEngine(64, 4, budget=64, seqs=2)
    for i in range(5):
        add(engine, [10 * i, 1], 3)
    assert len(engine.step().batch) == 2


def test_the_victim_is_the_last_admitted_of_the_lowest_priority() -> None:
    engine = ShadowEngine(5, 2, budget=32)
    first = add(engine, [1, 2], 7, priority=1)
    second = add(engine, [11, 12], 7)
    third = add(engine, [21, 22], 7, priority=1)
    preempted: list[str] = []
    while not preempted:
        preempted += engine.step().preempted
    assert preempted[0] == second.label
    engine.drain()
    assert {first.state, second.state, third.state} == {"finished"}


def test_the_last_admitted_gives_way() -> None:
    engine = ShadowEngine(4, 2, budget=32)
    sequences = [add(engine, [10 * i, 1], 6) for i in range(2)]
    preempted: list[str] = []
    while not preempted:
        preempted += engine.step().preempted
    assert preempted == [sequences[1].label]


def test_a_victim_that_is_planned_already_leaves_the_plan() -> None:
    engine = ShadowEngine(3, 4, budget=8, chunk=4)
    prefill = add(engine, list(range(12)), 1, priority=1)
    decode = add(engine, [90], 5)
    assert [len(engine.step().batch) for _ in range(2)] == [2, 2]
    plan = engine.step()
    assert [entry.seq for entry in plan.batch] == [prefill] and plan.preempted == [decode.label]
    engine.drain()


def test_a_step_that_preempts_admits_nobody() -> None:
    engine = ShadowEngine(5, 2, budget=8, chunk=2, seqs=2)
    first, second = add(engine, [1, 2], 8), add(engine, [11, 12, 13, 14, 15, 16], 3)
    plans = [engine.step() for _ in range(4)]
    assert plans[-1].preempted == [second.label]
    assert [entry.seq for entry in plans[-1].batch] == [first], "there would be room for the victim's next chunk"
    engine.drain()


def test_an_old_request_of_low_priority_gives_way_to_a_young_one() -> None:
    engine = ShadowEngine(4, 2, budget=32)
    old = add(engine, [1, 2], 6)
    engine.step()
    young = add(engine, [11, 12], 6, priority=1)
    preempted: list[str] = []
    while not preempted:
        preempted += engine.step().preempted
    assert preempted == [old.label] and young.state == "running"
    engine.drain()


def test_a_preempted_sequence_keeps_tokens_and_place_and_is_matched_again() -> None:
    engine = ShadowEngine(8, 4, budget=32, seqs=2)
    first, second = add(engine, [1, 2, 3, 4, 5], 6), add(engine, [11, 12], 2)
    third = add(engine, [21, 22], 2)
    engine.step()
    engine.scheduler.preempt(first)
    assert engine.scheduler.waiting == [first, third] and first.num_output_tokens == 1
    engine.step()
    assert first.admissions[-1].num_tokens == 6 and first.admissions[-1].hit == 5
    engine.drain()
    assert second.state == third.state == "finished"


def test_prefill_tokens_are_the_tokens_then_minus_the_hit_then() -> None:
    engine = ShadowEngine(6, 2, budget=32)
    sequences = [add(engine, [1, 2, 3, 10 * i], 5) for i in range(3)]
    engine.drain()
    assert engine.scheduler.num_preemptions > 0
    admissions = [admission for seq in sequences for admission in seq.admissions]
    assert engine.prefill_tokens == sum(a.num_tokens - a.hit for a in admissions)
    assert engine.prefill_tokens + engine.decode_tokens == sum(seq.num_computed_total for seq in sequences)


def test_the_watermark_keeps_blocks_for_those_that_run() -> None:
    engine = ShadowEngine(4, 4, budget=32, watermark=2)
    add(engine, [1, 2, 3], 12)
    waiting = add(engine, [11, 12, 13, 14, 15], 2)
    assert len(engine.step().batch) == 1, "one block held, two wanted, two kept back"
    engine.scheduler.finish(engine.all[0], "cancelled")
    assert [entry.seq for entry in engine.step().batch] == [waiting], "alone there is no watermark"


def test_the_last_token_needs_no_slot() -> None:
    engine = ShadowEngine(2, 4)
    assert engine.scheduler.fits(4, 5) == (2, 2)
    assert engine.scheduler.fits(4, 6) == (3, 2)
    seq = run(engine, [1, 2, 3, 4], 5)
    assert seq.num_output_tokens == 5 and engine.scheduler.num_preemptions == 0


def test_whole_prompts_without_chunking() -> None:
    engine = ShadowEngine(64, 4, budget=8, chunked=False)
    add(engine, list(range(20)), 2)
    add(engine, list(range(30, 36)), 2)
    first, second = engine.step(), engine.step()
    assert [entry.num_tokens for entry in first.batch] == [20]
    assert [entry.num_tokens for entry in second.batch] == [1, 6]
