"""The scheduling policies in a whole engine: same answers, same results with overlapped steps, the front's options."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, assert_idle, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB, Reference
from tests.engine.test_overlap import MIXED, plain, run_all, submitted, traces
from yaie_engine import SamplingParams
from yaie_engine.fairness import FairPolicy
from yaie_engine.policy import AGED

POLICIES = ["fcfs", "lpm", "priority", "fair"]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"num_blocks": 11, "max_num_seqs": 4, "enable_prefix_caching": False},
    {"num_blocks": 14, "max_num_batched_tokens": 6},
    {"max_num_seqs": 2, "enable_chunked_prefill": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_policy_gives_every_request_the_same_answer(make_llm: Make, settings: dict[str, Any]) -> None:
    """Prompts with shared heads, of mixed priorities and tenants, all at once and more than fit."""
    rng = random.Random(4)
    heads = [[rng.randrange(200) for _ in range(length)] for length in (9, 21)]
    asks = [
        ([*rng.choice(heads)[: rng.randrange(3, 22)], i], rng.randrange(1, 18), rng.choice([0, 0, 3]), rng.choice("ab"))
        for i in range(14)
    ]
    for policy in POLICIES:
        llm = make_llm(scheduling_policy=policy, **settings)
        swap_runner(llm, Formula(VOCAB).runner)
        handles = [
            llm.submit(prompt, greedy(count, ignore_eos=True, priority=priority), tenant=tenant)
            for prompt, count, priority, tenant in asks
        ]
        for handle, (prompt, count, _, _) in zip(handles, asks, strict=True):
            output = handle.result(LONG)
            assert output.error is None and tokens(output) == Formula.greedy(Formula(0), prompt, count), policy
        assert_idle(llm)


@pytest.mark.parametrize("settings", [{"num_blocks": 14}, {"max_num_seqs": 3, "max_num_batched_tokens": 6}], ids=str)
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_overlapped_steps_are_those_of_steps_in_turn(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch, policy: str, settings: dict[str, Any]
) -> None:
    found = []
    for overlap in (False, True):
        llm = make_llm(scheduling_policy=policy, **settings)
        llm._engine.overlap = overlap
        monkeypatch.setattr(llm._engine.runner, "replays", lambda num_decodes: num_decodes > 0)
        found.append(([plain(run_all(llm, MIXED)), plain(run_all(llm, MIXED[::-1]))], traces(llm)))
    (in_turn, told), (overlapped, told_overlapped) = found
    assert overlapped == in_turn
    for name, trace in told.items():
        assert told_overlapped[name] == trace, name


def test_case_09_a_high_one_takes_the_place_of_a_low_one(make_llm: Make, reference: Reference) -> None:
    """Four low ones fill all slots; the high one is served first, and the low ones end right."""
    llm = make_llm(max_num_seqs=4, scheduling_policy="priority", num_blocks=128)
    low = [[10 * i + j for j in range(9)] for i in range(4)]
    high = list(range(100, 120))
    handles = [llm.submit(prompt, greedy(100, ignore_eos=True)) for prompt in low]
    eventually(lambda: llm.snapshot().queue.decode == 4)
    output = llm.submit(high, greedy(20, ignore_eos=True, priority=1)).result(LONG)
    first = llm.history()[-1]
    assert len(tokens(output)) == 20 and output.metrics.num_preemptions == 0
    assert tokens(output)[:10] == reference.greedy(high, 10)
    for prompt, handle in zip(low, handles, strict=True):
        result = handle.result(LONG)
        expected = reference.greedy(prompt, 60)
        assert len(tokens(result)) == 100 and tokens(result)[: len(expected)] == expected
        last = next(record for record in llm.history() if record.request_id == handle.request_id).last_step
        assert last is not None and first.last_step is not None and first.last_step < last
    assert llm.snapshot().counters.preemptions == 1
    assert_idle(llm)


def test_a_burst_shows_in_the_counters(make_llm: Make) -> None:
    llm = make_llm(num_blocks=128, long_prefill_token_threshold=0)
    head = list(range(1, 65))
    outputs = [handle.result(LONG) for handle in submitted(llm, [([*head, 100 + i], greedy(1)) for i in range(6)])]
    counters = llm.snapshot().counters
    assert (counters.cached_tokens, counters.computed_tokens) == (5 * 64, 64 + 6)
    assert sorted(output.num_cached_tokens for output in outputs) == [0] + [64] * 5


def test_tenants_come_in_beside_the_parameters(make_llm: Make) -> None:
    llm = make_llm(scheduling_policy="fair")
    policy = llm._scheduler.policy
    assert isinstance(policy, FairPolicy)
    llm.submit([1, 2, 3], greedy(2, ignore_eos=True), tenant="session-1").result(LONG)
    llm.submit([7, 8], SamplingParams(n=2, max_tokens=1)).result(LONG)
    assert policy.counters == {"session-1": 3 + 2 * 2, "": 3 + 2 * 2 + 2 + 1 + 2 * 2}, "lifted, then served"
    with pytest.raises(ValueError, match="tenant=5: a text is needed"):
        llm.submit([1], tenant=5)  # type: ignore[arg-type]
    assert_idle(llm)


def test_no_priority_is_above_an_aged_one() -> None:
    most = SamplingParams.model_fields["priority"].metadata
    assert max(getattr(bound, "le", 0) for bound in most) < AGED
