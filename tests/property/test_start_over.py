"""What is cached is forgotten while requests run: nobody finds it any more, and they go on."""

from __future__ import annotations

import random

import pytest

from tests.property.shadow import ShadowEngine, add, count_up, run
from yaie_engine.renewal import BEFORE, start_over
from yaie_engine.sequence import Sequence

HEAD = list(range(10, 19))
KINDS: list[dict[str, object]] = [
    {}, {}, {}, {"namespace": "mine"}, {"namespace": "fork", "private": True}, {"read_cache": False},
]  # fmt: skip


def check(engine: ShadowEngine) -> None:
    """Nobody finds anything: what is left belongs to those that run, each in a namespace of its kind."""
    scheduler, host = engine.scheduler, engine.scheduler.host
    assert all(not root.children or name.startswith(BEFORE) for name, root in scheduler.tree.roots.items())
    assert not host.tree.root.children and host.pool.num_free == host.pool.total
    assert all(seq.namespace.startswith(BEFORE) and seq.private for seq in scheduler.running)
    assert scheduler.pool.num_cached == 0
    engine.check()


def random_prompt(draw: random.Random) -> list[int]:
    head = HEAD[: draw.randint(0, 9)]
    return [*head, *(draw.randint(1, 3) for _ in range(draw.randint(1, 6)))]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_it_may_happen_between_any_two_steps(seed: int, overlap: bool) -> None:
    draw = random.Random(seed)
    engine = ShadowEngine(14, draw.choice([1, 3, 4]), chunk=4, host=draw.choice([0, 9]), swaps=True, overlap=overlap)
    for _ in range(60):
        for _ in range(draw.randint(0, 2)):
            engine.add(random_prompt(draw), draw.randint(1, 7), count_up, **draw.choice(KINDS))  # type: ignore[arg-type]
        if engine.scheduler.running and draw.random() < 0.1:
            engine.scheduler.preempt(draw.choice(engine.scheduler.running))
        if draw.random() < 0.2:
            engine.guess = None
            start_over(engine.scheduler)
            check(engine)
        engine.step(fail=draw.choice([None] * 9 + ["forward"]))
    engine.drain()
    assert not engine.scheduler.private and not any(name.startswith(BEFORE) for name in engine.scheduler.tree.roots)
    assert all(seq.state in ("finished", "failed") for seq in engine.all)


def test_who_comes_later_takes_nothing_from_who_runs_and_leaves_it_alone() -> None:
    engine = ShadowEngine(32, 4)
    old: Sequence = add(engine, HEAD, 6)
    engine.step()
    engine.step()
    start_over(engine.scheduler)
    check(engine)
    new = run(engine, [*HEAD, 1, 2])
    assert new.num_cached_tokens == 0, "whose prompt still runs"
    engine.drain()
    assert old.state == "finished" and old.num_preemptions == 0
    assert run(engine, HEAD + engine.expected(old)).num_cached_tokens == len(HEAD), "of the old one nothing stayed"
    assert run(engine, [*HEAD, 1, 2, 3]).num_cached_tokens == len(HEAD) + 2


def test_a_second_time_changes_nothing_for_who_ran_before_the_first() -> None:
    engine = ShadowEngine(32, 4)
    seq = add(engine, HEAD, 6)
    engine.step()
    engine.step()
    start_over(engine.scheduler)
    name = seq.namespace
    engine.step()
    start_over(engine.scheduler)
    check(engine)
    assert seq.namespace == name
    engine.drain()


def test_who_was_swapped_out_is_computed_again() -> None:
    engine = ShadowEngine(16, 4, host=16, swaps=True)
    seq = add(engine, HEAD, 3)
    engine.step()
    engine.step()
    engine.scheduler.preempt(seq)
    assert seq.swapped
    start_over(engine.scheduler)
    assert not seq.swapped
    check(engine)
    engine.drain()
    assert engine.restored == 0 and seq.restored_from_host == 0 and seq.state == "finished"


def test_nobody_follows_who_ran_before() -> None:
    """It computes its prompt itself, and would wait for tokens that it never finds."""
    engine = ShadowEngine(32, 4, budget=16, shared=4)
    add(engine, list(range(40)), 1)
    engine.step()
    start_over(engine.scheduler)
    seq = add(engine, list(range(40)), 1)
    engine.step()
    assert seq.patience is None
    engine.drain()
