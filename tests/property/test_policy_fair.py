"""The policy "fair": tenants that wait get equal service, however much they ask for and however they ask."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.property.shadow import ShadowEngine, add
from tests.property.unchecked import Unchecked
from yaie_engine import RequestError
from yaie_engine.fairness import KEPT_TENANTS, OUTPUT_PRICE, FairPolicy, check_tenant
from yaie_engine.sequence import Sequence

SLOTS = 3


def engine_of(total: int = 256, **kind: Any) -> ShadowEngine:
    return ShadowEngine(total, 4, **{"budget": 32, "policy": "fair", "shared": 0, **kind})


def unchecked(total: int = 256, policy: str = "fair", chunk: int = 0, ageing: int = 512) -> Unchecked:
    limits = {"max_num_seqs": SLOTS, "max_num_batched_tokens": 32, "long_prefill_token_threshold": chunk}
    return Unchecked(total, policy=policy, ageing=ageing, shared_prefill=0, **limits)


def policy_of(engine: ShadowEngine | Unchecked) -> FairPolicy:
    policy = engine.scheduler.policy
    assert isinstance(policy, FairPolicy)
    return policy


def service(engine: Unchecked) -> Counter[str]:
    """What each tenant got: prompt tokens of who was admitted, but for cached ones, and output tokens at their price.

    Told from the sequences, not from the policy's counters.
    """
    got: Counter[str] = Counter()
    for seq in engine.all:
        if seq.admissions:
            got[seq.tenant] += seq.num_prompt_tokens - seq.admissions[0].hit + OUTPUT_PRICE * seq.num_output_tokens
    return got


def fill(engine: Unchecked, rng: random.Random, tenant: str, waiting: int, prompt: int, tokens: int) -> None:
    """Let `tenant` have `waiting` requests in the queue, of up to so many tokens."""
    for _ in range(waiting - sum(seq.tenant == tenant for seq in engine.scheduler.waiting)):
        ids = [rng.randrange(10**6) for _ in range(rng.randrange(1, prompt + 1))]
        engine.add(ids, rng.randrange(1, tokens + 1), tenant=tenant, priority=rng.choice([0, 0, 9]))


SHAPES = {  # tenant: (requests that wait, more than there are slots; longest prompt; most tokens)
    "many against few": {"a": (30, 6, 4), "b": (4, 6, 4)},
    "long against short": {"a": (4, 24, 12), "b": (4, 4, 3)},
    "prompts against outputs": {"a": (4, 24, 1), "b": (4, 2, 16)},
    "three": {"a": (20, 10, 10), "b": (5, 10, 10), "c": (4, 20, 2)},
}


@pytest.mark.parametrize("settings", [{}, {"total": 14}, {"chunk": 3}, {"ageing": 5}], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_tenants_that_always_wait_differ_by_the_bound_at_most(shape: str, settings: dict[str, Any]) -> None:
    """2 max(longest prompt, price of a full batch) in every interval, as in the paper; not under "fcfs"."""
    tenants = SHAPES[shape]
    longest = max(prompt for _, prompt, _ in tenants.values())
    batch = SLOTS * max(tokens for _, _, tokens in tenants.values())
    bound = 2 * max(longest, OUTPUT_PRICE * batch)
    widest = {}
    for policy in ("fair", "fcfs"):
        rng = random.Random(7)
        engine = unchecked(**settings, policy=policy)
        differences: list[dict[str, int]] = []
        for _ in range(300):
            for tenant, load in tenants.items():
                fill(engine, rng, tenant, *load)
            engine.step()
            got = service(engine)
            differences.append({tenant: got[tenant] - got["a"] for tenant in tenants})
            assert {seq.tenant for seq in engine.scheduler.waiting} == set(tenants)
        widest[policy] = max(max(d[t] for d in differences) - min(d[t] for d in differences) for t in tenants)
    assert widest["fair"] <= bound < widest["fcfs"]


def test_the_counters_are_the_service() -> None:
    engine = unchecked(total=9)
    rng = random.Random(3)
    for _ in range(100):
        fill(engine, rng, "a", 6, 12, 9)
        fill(engine, rng, "b", 4, 12, 9)
        engine.step()
    engine.drain()
    assert engine.scheduler.num_preemptions > 0, "nothing is paid twice"
    assert dict(policy_of(engine).counters) == dict(service(engine))


def test_cached_tokens_are_free() -> None:
    engine = engine_of()
    for _ in range(2):
        add(engine, list(range(20)), 1, tenant="a")
        engine.drain()
    assert policy_of(engine).counters == {"a": 20 + OUTPUT_PRICE + 1 + OUTPUT_PRICE}


@pytest.mark.parametrize("waits", [True, False])
def test_nobody_saves_up_while_idle(waits: bool) -> None:
    """A tenant that comes back starts where the others are: with those that wait, or with the last one that did."""
    engine = engine_of(seqs=1)
    for _ in range(5):
        add(engine, [len(engine.all)] * 10, 4, tenant="a")
    for _ in range(12 if waits else 10**3):
        engine.step()
        if engine.scheduler.idle:
            break
    assert engine.scheduler.idle is not waits
    counters = policy_of(engine).counters
    add(engine, [99], 1, tenant="b")
    assert counters["b"] == counters["a"] > 0
    engine.drain()


def test_within_a_tenant_higher_priorities_first_then_order_of_arrival() -> None:
    engine = engine_of(seqs=1)
    asks = [("a", 0), ("a", 0), ("a", 3), ("b", 0), ("b", 0)]
    seqs = [add(engine, [50 + i], 1, tenant=tenant, priority=priority) for i, (tenant, priority) in enumerate(asks)]
    engine.drain()
    order = sorted(engine.all, key=lambda seq: seq.admissions[0].step)
    assert order == [seqs[i] for i in (2, 3, 0, 4, 1)]


def test_without_tenants_it_is_first_come_first_served() -> None:
    found = []
    for policy in ("fair", "fcfs"):
        rng = random.Random(5)
        engine = engine_of(total=16, seqs=3, policy=policy)
        for _ in range(60):
            if rng.random() < 0.4:
                add(engine, [rng.randrange(5) for _ in range(rng.randrange(1, 12))], rng.randrange(1, 6))
            engine.step()
        engine.drain()
        found.append([[admission.step for admission in seq.admissions] for seq in engine.all])
    assert found[0] == found[1]


def test_a_low_priority_ages_within_its_tenant() -> None:
    engine = engine_of(seqs=1, ageing=8)
    low = add(engine, [1], 1, tenant="a")
    for i in range(40):
        while sum(seq.tenant == "a" for seq in engine.scheduler.waiting) < 4:
            add(engine, [100 + i], 1, tenant="a", priority=5)
        add(engine, [200 + i], 1, tenant="b")
        engine.step()
    assert low.state == "finished" and 8 <= low.admissions[0].step <= 8 + 4
    for seq in list(engine.scheduler.waiting):
        engine.scheduler.finish(seq, "cancelled")
    engine.drain()


def test_tenants_that_are_gone_are_forgotten() -> None:
    engine = unchecked()
    for i in range(3 * KEPT_TENANTS):
        engine.add([i, i], 1, tenant=f"t{i}")
        if i % 4 == 3:
            engine.drain()
    policy = policy_of(engine)
    assert len(policy.counters) <= 2 * KEPT_TENANTS and not policy._live and not policy._waiting


def test_what_ends_in_any_state_and_a_restart_leave_the_books_right() -> None:
    engine = engine_of(seqs=2)
    seqs = [add(engine, [i], 5, tenant="ab"[i % 2]) for i in range(6)]
    engine.step()
    engine.scheduler.finish(seqs[0], "cancelled")
    engine.scheduler.finish(seqs[5], "cancelled")
    policy = policy_of(engine)
    assert policy._live == Counter({"a": 2, "b": 2}) and policy._waiting == Counter({"a": 2, "b": 1})
    engine.scheduler.rebuild()
    assert policy._live == policy._waiting == Counter({"a": 2, "b": 2})
    engine.drain()
    assert not policy._live and not policy._waiting


@pytest.mark.parametrize("tenant", [5, None, b"a", "x" * 257])
def test_a_tenant_is_a_short_text(tenant: object) -> None:
    check_tenant("key-1")
    with pytest.raises(RequestError, match=r"^tenant"):
        check_tenant(tenant)


def test_choices_of_one_request_are_one_tenant_s() -> None:
    engine = engine_of()
    choices: list[Sequence] = engine.fork([1, 2, 3, 4, 5], 3, [lambda ids: ids[-1] + 1] * 3, max_tokens=2, tenant="a")
    engine.drain()
    assert policy_of(engine).counters == {"a": 5 + 1 + 1 + 3 * 2 * OUTPUT_PRICE} and len(choices) == 3
