"""Failed steps, stopped sequences and the record of what blocks and nodes did, on the shadow KV."""

from __future__ import annotations

from dataclasses import replace

from tests.property.shadow import ShadowEngine, add, count_up, run


def test_a_failed_step_changes_nothing_that_counts() -> None:
    engine = ShadowEngine(8, 4, budget=32)
    run(engine, [1, 2, 3, 4, 5, 6, 7])
    seq = add(engine, [1, 2, 3, 4, 5, 6, 9, 9, 9], 3)
    engine.step(fail="forward")
    assert seq.state == "waiting" and seq.computed == 0 and seq.block_table == []
    assert engine.scheduler.pool.num_held == 0
    engine.drain()
    assert seq.state == "finished"


def test_the_source_of_a_copy_is_held_until_it_has_run() -> None:
    engine = ShadowEngine(3, 4, budget=32)
    run(engine, [1, 2, 3, 4, 5, 6])
    add(engine, [1, 2, 3, 4, 5, 9], 3)
    plan = engine.scheduler.schedule()
    ((source, _),) = plan.copies
    assert engine.scheduler.pool.ref_count[source] == 1
    engine.scheduler.abort(plan)
    assert engine.scheduler.pool.ref_count[source] == 0
    engine.drain()


def test_stopping_a_planned_sequence_takes_its_copy_out() -> None:
    engine = ShadowEngine(8, 4, budget=32)
    run(engine, [1, 2, 3, 4, 5, 6])
    add(engine, [1, 2, 3, 4, 5, 9], 3)
    engine.step(stop_planned=(0, "cancel"))
    assert engine.scheduler.pool.num_held == 0
    assert engine.step().copies == []


def test_events_account_for_every_block() -> None:
    engine = ShadowEngine(6, 4, budget=8, chunk=4)
    free = set(range(6))
    for start in range(0, 60, 10):
        add(engine, [1, 2, 3, 4, 5, start, start + 1], 4)
    while not engine.scheduler.idle:
        engine.step()
        blocks = engine.recorder.steps()[-1].blocks
        counts = dict.fromkeys(free, 1)
        for block in (*blocks.freed, *blocks.evicted):
            counts[block] = counts.get(block, 0) + 1
        for block in blocks.allocated:
            counts[block] = counts.get(block, 0) - 1
        free = {block for block, count in counts.items() if count == 1}
        assert free == set(engine.scheduler.pool.free_blocks)
    assert engine.scheduler.tree.step > 0


def test_tree_events_name_the_nodes() -> None:
    engine = ShadowEngine(16, 4, budget=32)
    run(engine, [1, 2, 3, 4, 5, 6], 2)
    first, second = (record.tree for record in engine.recorder.steps())
    assert first.added == (1,) and second.extended == (1,) and not first.split and not second.split
    run(engine, [1, 2, 3, 9], 1)
    tree = engine.recorder.steps()[-1].tree
    assert len(tree.split) == 1 and len(tree.added) == 1
    engine.scheduler.tree.clear()
    _, tree = engine.scheduler.changes.take()
    assert len(tree.evicted) == 3


def test_clearing_the_tree_while_a_follower_waits_is_safe() -> None:
    engine = ShadowEngine(8, 4, budget=4)
    choices = engine.fork(list(range(6)), 2, [count_up] * 2, False, max_tokens=1)
    engine.step()
    engine.step()
    engine.scheduler.tree.clear()
    engine.drain()
    assert {seq.state for seq in choices} == {"finished"}


def test_a_guessed_step_tells_the_runner_who_left_before_it() -> None:
    """Somebody for whom the budget was too small, so that no entry of the guess is about it."""
    engine = ShadowEngine(32, 4, budget=3, seqs=3, overlap=True)
    for start in (10, 20, 30):
        add(engine, [start], 20)
    engine.step()
    engine.guess, engine.scheduler.limits = None, replace(engine.scheduler.limits, max_num_batched_tokens=2)
    engine.step()
    assert engine.guess is not None and len(engine.scheduler.running) == 3
    planned = [entry.seq for entry in engine.guess.order]
    (left,) = [seq for seq in engine.scheduler.running if seq not in planned]
    engine.scheduler.finish(left, "cancelled")
    right = engine.guesses["right"]
    assert engine.step().released == [left.seq_id] and engine.guesses["right"] == right + 1
    engine.drain()


def test_a_guess_does_not_hold_when_somebody_has_come() -> None:
    engine = ShadowEngine(32, 4, budget=8, seqs=3, overlap=True)
    add(engine, [10], 20)
    engine.step()
    engine.step()
    assert engine.guess is not None
    newcomer, wrong = add(engine, [20], 3), engine.guesses["wrong"]
    assert [entry.seq for entry in engine.step().batch if entry.kind == "prefill"] == [newcomer]
    assert engine.guesses["wrong"] == wrong + 1
    engine.drain()


def test_a_guess_knows_that_the_budget_grows_back() -> None:
    """After a step that did not fit into memory, by one token with each step that succeeds."""
    engine = ShadowEngine(32, 4, budget=8, overlap=True)
    add(engine, list(range(40)), 4)
    plan = engine.scheduler.schedule()
    engine.scheduler.abort(plan)
    assert engine.scheduler.shrink(plan) == [] and engine.scheduler.budget == 4
    assert [engine.step().num_tokens for _ in range(6)] == [4, 5, 6, 7, 8, 8]
    assert engine.guesses["right"] == 5
    engine.drain()
