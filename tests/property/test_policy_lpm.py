"""The policy "lpm": the longest cached prefix goes first, and nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from tests.property.shadow import ShadowEngine, add, count_up, run, state_of
from yaie_engine import policy
from yaie_engine.policy import LongestPrefixPolicy
from yaie_engine.sequence import Sequence


def engine_of(seqs: int = 1, ageing: int = 512, total: int = 64, **limits: int) -> ShadowEngine:
    return ShadowEngine(total, 4, budget=limits.pop("budget", 64), seqs=seqs, policy="lpm", ageing=ageing, **limits)


def order_of_admission(engine: ShadowEngine) -> list[Sequence]:
    engine.drain()
    return sorted(engine.all, key=lambda seq: seq.admissions[0].step)


def test_the_longest_cached_prefix_goes_first_and_ties_in_order_of_arrival() -> None:
    engine = engine_of()
    run(engine, [1, 2, 3, 4, 5, 6, 7, 8])
    prompts = [[50, 51], [1, 2, 3, 60], [70, 71], [1, 2, 3, 4, 5, 6, 80], [1, 2, 3, 90]]
    seqs = [add(engine, prompt) for prompt in prompts]
    assert order_of_admission(engine)[1:] == [seqs[i] for i in (3, 1, 4, 0, 2)]


def test_what_is_published_meanwhile_counts() -> None:
    engine = engine_of()
    first, other = add(engine, [1, 2, 3, 4, 5, 6]), add(engine, [70, 71, 72])
    late = add(engine, [1, 2, 3, 4, 9])
    assert order_of_admission(engine) == [first, late, other]


def test_priority_comes_before_the_prefix() -> None:
    engine = engine_of()
    run(engine, [1, 2, 3, 4])
    known, urgent = add(engine, [1, 2, 3, 5]), add(engine, [40, 41], priority=1)
    assert order_of_admission(engine)[1:] == [urgent, known]


def test_the_prefixes_of_others_and_unread_caches_do_not_count() -> None:
    engine = engine_of()
    run(engine, [1, 2, 3, 4, 5], namespace="a")
    run(engine, [7, 8, 9])
    scores = add(engine, [1, 2, 3, 4, 6], namespace="a", read_cache=False)
    foreign, known = add(engine, [1, 2, 3, 4, 6]), add(engine, [7, 8, 1])
    assert order_of_admission(engine)[2:] == [known, scores, foreign]


def test_the_order_is_found_without_changing_the_tree() -> None:
    engine = engine_of()
    run(engine, [1, 2, 3, 4, 5, 6])
    run(engine, [1, 2, 9, 9])
    for prompt in ([1, 2, 3, 7], [1, 2, 9, 8], [5]):
        add(engine, prompt)
    scheduler = engine.scheduler
    nodes = [(n.id, n.used, n.used_step, list(n.token_ids), list(n.blocks)) for n in scheduler.tree.nodes()]
    before = state_of(scheduler)
    found = list(scheduler.policy.candidates(scheduler.waiting, scheduler.tree, scheduler.step, 8))
    assert [seq.token_ids for seq in found] == [[1, 2, 3, 7], [1, 2, 9, 8], [5]]
    assert state_of(scheduler) == before
    assert nodes == [(n.id, n.used, n.used_step, list(n.token_ids), list(n.blocks)) for n in scheduler.tree.nodes()]
    engine.drain()


@pytest.mark.parametrize(
    "prompt", [[], [1], [1, 2, 3], [1, 2, 9, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8], [3, 1], [1, 2, 3, 9]]
)
def test_find_gives_what_a_match_would(prompt: list[int]) -> None:
    engine = engine_of()
    run(engine, [1, 2, 3, 4, 5, 6])
    run(engine, [1, 2, 9, 9])
    tree = engine.scheduler.tree
    assert tree.find(prompt, "nobody") == (None, 0)
    node, length = tree.find(prompt)
    assert length == engine.longest(prompt) and node is not None and node.start <= length <= node.end
    assert tree.match(prompt).end == length


def test_the_work_of_a_step_does_not_grow_with_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "WINDOW", 16)
    engine = engine_of(seqs=2, total=256)
    run(engine, list(range(30)))
    for start in range(80):
        add(engine, [*range(9), 90 + start])
    looked: list[int] = []
    find = engine.scheduler.tree.find
    monkeypatch.setattr(engine.scheduler.tree, "find", lambda *args: (looked.append(1), find(*args))[1])
    waiting, tree = engine.scheduler.waiting, engine.scheduler.tree
    for left, most_compared, expected in ((8, 10**6, 16), (8, 50, 6), (0, 10**6, 0)):
        monkeypatch.setattr(policy, "MOST_COMPARED", most_compared)
        looked.clear()
        assert list(LongestPrefixPolicy().candidates(waiting, tree, 0, left)) == waiting
        assert len(looked) == expected, "without budget nobody is matched"


@pytest.mark.parametrize("seed", range(6))
def test_nobody_waits_longer_than_the_bound(seed: int) -> None:
    """The adversary adds requests with the longest prefixes as fast as they are served, and older victims without.

    Once old enough, one waits for those who came before it to become due, one after the other, each after a pause and
    when a slot is free.
    """
    rng = random.Random(seed)
    ageing, slots, tokens = rng.choice([5, 10, 32]), rng.choice([1, 2, 3]), rng.choice([1, 2, 4])
    engine = engine_of(seqs=slots, ageing=ageing, budget=32, shared=rng.choice([0, 2]))
    run(engine, list(range(100, 120)))
    lasts = tokens + 1
    waits: dict[Sequence, int] = {}
    ahead: dict[Sequence, int] = {}
    for i in range(150):
        step = engine.scheduler.step
        while sum(seq.num_tokens > 10 for seq in engine.scheduler.waiting) <= slots:
            add(engine, [*range(100, 116), rng.randrange(1000, 9000)], tokens, priority=rng.choice([0, 0, 3]))
        if i < 100 and rng.random() < 0.2:
            victim = add(engine, [rng.randrange(1000, 9000), i], tokens)
            ahead[victim], waits[victim] = len(engine.scheduler.waiting), step
        engine.step()
    engine.drain()
    assert len(waits) > 5
    most = 0
    for seq, since in waits.items():
        waited = seq.admissions[0].step - since
        most = max(most, waited)
        assert waited <= ageing + (ahead[seq] + 1) * (engine.scheduler.policy.pause + lasts)
    assert most >= ageing, "the adversary is strong enough to make somebody wait for his age"


def test_without_age_the_adversary_wins() -> None:
    """What the test above would see."""
    engine = engine_of(ageing=10**9)
    run(engine, list(range(100, 120)))
    victim = add(engine, [5, 6])
    for i in range(60):
        while len(engine.scheduler.waiting) < 3:
            add(engine, [*range(100, 116), 1000 + i])
        engine.step()
    assert victim.state == "waiting"
    engine.drain()


def test_all_waits_of_a_sequence_count_together() -> None:
    """Before its first admission and after a preemption."""
    engine = engine_of(seqs=1, ageing=6)
    known = [1, 2, 3, 4, 5, 6, 7, 8]
    run(engine, known, 3)
    add(engine, [*known, 9], 3)
    old = add(engine, [50, 51], 3)
    while old.state == "waiting":
        engine.step()
    assert old.rank == 0 and old.waited == 3
    for i in range(9):
        engine.add([*known, i + 60], 1, count_up)
    engine.scheduler.preempt(old)
    for _ in range(3):
        engine.step()
        assert old.state == "waiting"
    engine.step()
    assert old.state == "running" and old.rank > 10**6 and old.waited == 6
    engine.drain()
