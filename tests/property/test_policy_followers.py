"""Equal prefixes that arrive together are computed once, under every policy, and nobody waits too long for another."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.property.shadow import ShadowEngine, add, count_up
from tests.property.unchecked import Unchecked
from yaie_engine import followers
from yaie_engine.sequence import Sequence

HEAD = list(range(100, 120))
POLICIES = ["fcfs", "lpm", "priority", "fair"]


def engine_of(policy: str = "fcfs", total: int = 96, **kind: Any) -> ShadowEngine:
    return ShadowEngine(total, 4, policy=policy, **{"budget": 64, "seqs": 16, "shared": 4, **kind})


def burst(engine: ShadowEngine, count: int, head: list[int] = HEAD, **kind: Any) -> list[Sequence]:
    """As many requests with one head, each with two tokens of its own."""
    return [add(engine, [*head, 200 + i, 300 + i], 3, **kind) for i in range(count)]


def computed(seqs: list[Sequence]) -> int:
    """Prompt tokens that were computed."""
    return sum(seq.num_computed_total - seq.num_output_tokens + 1 for seq in seqs)


@pytest.mark.parametrize("chunk", [0, 7, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_burst_computes_its_head_once(policy: str, chunk: int) -> None:
    engine = engine_of(policy, chunk=chunk)
    seqs = burst(engine, 8, tenant="t")
    engine.drain()
    assert computed(seqs) == len(HEAD) + 8 * 2
    assert [seq.num_cached_tokens for seq in seqs] == [0] + [len(HEAD)] * 7
    late = -(-len(HEAD) // (chunk or 64))
    assert [seq.admissions[0].step for seq in seqs] == [1] + [1 + late] * 7


def test_without_that_it_is_computed_by_everybody() -> None:
    engine = engine_of(shared=0, budget=512)
    seqs = burst(engine, 8)
    engine.drain()
    assert computed(seqs) == 8 * (len(HEAD) + 2)


def test_one_that_computes_already_is_followed_from_where_it_is() -> None:
    engine = engine_of(chunk=4)
    first = burst(engine, 1)[0]
    engine.step()
    engine.step()
    second = burst(engine, 1)[0]
    engine.drain()
    assert first.admissions[0].step == 1 and second.admissions[0].step == 6, "five chunks for the head in all"
    assert second.num_cached_tokens == len(HEAD)


def test_what_the_cache_has_is_waited_for_by_nobody() -> None:
    engine = engine_of()
    add(engine, HEAD)
    engine.drain()
    seqs = burst(engine, 4)
    engine.step()
    assert {seq.state for seq in seqs} == {"running"} and computed(seqs) == 4 * 2
    engine.drain()


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8])
def test_few_shared_tokens_are_not_worth_a_step(length: int) -> None:
    """Fewer than the limit, in whole multiples of it."""
    engine = engine_of()
    seqs = burst(engine, 2, HEAD[:length])
    engine.step()
    assert (seqs[1].state == "waiting") is (length >= 4)
    engine.drain()


def test_of_a_cached_head_only_what_is_missing_counts() -> None:
    engine = engine_of()
    add(engine, HEAD[:18])
    engine.drain()
    seqs = burst(engine, 2)
    engine.step()
    assert [seq.state for seq in seqs] == ["running", "running"] and computed(seqs) == 2 * 4
    engine.drain()


def test_salts_and_prompts_whose_cache_is_not_read_follow_nobody() -> None:
    engine = engine_of(budget=512)
    seqs = [add(engine, HEAD, 1, namespace=name) for name in ("", "a", "b")]
    seqs.append(add(engine, HEAD, 1, read_cache=False))
    engine.step()
    assert all(seq.state == "finished" for seq in seqs)


def test_one_that_does_not_read_the_cache_is_followed() -> None:
    engine = engine_of()
    first, second = add(engine, HEAD, 2, read_cache=False), add(engine, HEAD, 2)
    engine.drain()
    assert second.num_cached_tokens == len(HEAD) - 1 and first.num_computed_total == len(HEAD) + 1


def test_equal_hashes_of_unequal_tokens_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "hash", lambda value: 7, raising=False)
    engine = engine_of()
    seqs = [add(engine, list(range(start, start + 12)), 2) for start in (0, 50, 90)]
    engine.step()
    assert {seq.state for seq in seqs} == {"running"}
    engine.drain()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", ["cancelled", "failed", "preempted", "failed step"])
def test_when_the_leader_is_gone_the_next_one_leads(how: str, policy: str) -> None:
    engine = engine_of(policy, chunk=4)
    seqs = burst(engine, 5)
    engine.step()
    engine.step()
    leader = next(seq for seq in seqs if seq.state == "running")
    if how == "preempted":
        engine.scheduler.preempt(leader)
    elif how == "failed step":
        engine.step(fail="forward")
    else:
        engine.scheduler.finish(leader, "cancelled" if how == "cancelled" else "failed")
    engine.step()
    assert len(engine.scheduler.running) == 1, "one goes on with what was computed, the others follow it"
    engine.drain()
    assert sum(seq.state == "finished" for seq in seqs) == (5 if how in ("preempted", "failed step") else 4)
    lost = 0 if how == "cancelled" else 4 if how != "failed step" else 4 + 4 * 4  # nobody waits a step more for it
    assert sum(seq.num_computed_total for seq in seqs) <= len(HEAD) + lost + 5 * 5


def test_nobody_waits_longer_than_its_own_prefill_would_take() -> None:
    """The leader gets nowhere: every step fails."""
    engine = engine_of(chunk=4)
    leader, follower = burst(engine, 2)
    plans = [engine.step(fail="forward") for _ in range(7)]
    for step, plan in enumerate(plans):
        batch = [entry.seq for entry in plan.batch]
        assert batch == ([leader] if step < len(HEAD) // 4 else [leader, follower])
    engine.drain()


def test_it_waits_once_and_not_for_one_leader_after_the_other() -> None:
    engine = engine_of(chunk=4)
    leaders = burst(engine, 4)
    engine.step()
    patient = add(engine, [*HEAD, 1, 2], 1)
    for _ in range(12):
        if patient.state != "waiting":
            break
        for seq in leaders:
            if seq.state == "running":
                engine.scheduler.preempt(seq)
        engine.step()
    assert patient.admissions[0].step <= 2 + len(HEAD) // 4
    engine.drain()


def test_what_a_follower_needs_is_kept_for_it() -> None:
    """Its slot, its blocks, and the budget of the next step; others pass where that is left to it."""
    for settings, passes in (({}, True), ({"seqs": 2}, False), ({"total": 13}, False), ({"budget": 30}, False)):
        engine = engine_of(**{"watermark": 0, **settings})
        _, follower = burst(engine, 2)
        other = add(engine, list(range(500, 510)), 2)
        engine.step()
        assert follower.state == "waiting" and (other.state == "running") is passes, settings
        engine.step()
        assert follower.state == "running", settings
        engine.drain()


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_of_a_long_queue_only_as_many_follow_as_there_are_slots(policy: str, low: bool) -> None:
    """The others could not start next either, and to look at each costs what its prompt is long."""
    engine = engine_of(policy, total=200, seqs=4, chunk=4)
    if low:
        add(engine, [1], 9)
        engine.step()
    seqs = burst(engine, 40, priority=1)
    engine.step()
    assert [seq.state for seq in seqs].count("running") == 1
    assert sum(seq.patience is not None for seq in seqs) in ((3, 4) if policy == "priority" else (3 - low,))
    engine.drain()
    assert computed(seqs) == len(HEAD) + 40 * 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_random_bursts_end_and_compute_less(seed: int, policy: str) -> None:
    """With cancels and preemptions in small pools; every output is the right one (`ShadowEngine.check`)."""
    spent = []
    for shared in (0, 3):
        rng = random.Random(seed)
        engine = engine_of(policy, total=26, shared=shared, chunk=rng.choice([0, 5]), budget=24, seqs=6, ageing=9)
        for _ in range(14):
            head = [rng.randrange(3)] * rng.randrange(8, 20)
            for i in range(rng.randrange(1, 5)):
                tenant, priority = rng.choice("ab"), rng.choice([0, 0, 1])
                engine.add([*head, 50 + i], rng.randrange(1, 4), count_up, tenant=tenant, priority=priority)
            engine.step()
            if rng.random() < 0.2 and engine.scheduler.running:
                engine.scheduler.finish(rng.choice(engine.scheduler.running), "cancelled")
        engine.drain()
        spent.append(engine.prefill_tokens)
        assert all(seq.state in ("finished", "cancelled") for seq in engine.all)
    assert spent[1] <= spent[0]


@pytest.mark.parametrize("fixed", [4, 32, 200])
@pytest.mark.parametrize("count", [2, 5, 16])
def test_following_from_the_fixed_cost_of_a_step_on_makes_nobody_slower(count: int, fixed: int) -> None:
    """By a clock on which a step costs as much as `fixed` tokens and then one for each token."""
    for length in (fixed + 2, 2 * fixed + 5, 4 * fixed):
        first: list[list[int]] = []
        for shared in (0, fixed):
            engine = Unchecked(4096, 16, max_num_batched_tokens=2**16, shared_prefill=shared)
            seqs = [engine.add([*range(length), 10**6 + i, i], 4) for i in range(count)]
            clock, times = 0, dict[Sequence, int]()
            while not engine.scheduler.idle:
                plan = engine.step()
                clock += fixed + plan.num_tokens
                for entry in plan.sampling:
                    times.setdefault(entry.seq, clock)
            first.append([times[seq] for seq in seqs])
        # Whole grains are shared: up to one grain less one token is computed twice.
        assert all(b <= a + fixed + 1 for a, b in zip(*first, strict=True))
        assert first[1][0] <= first[0][0]
        if length % fixed == 0:
            assert max(first[1]) <= max(first[0])
