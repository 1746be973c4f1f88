"""Findings on runs made by hand: each on one that has it and on one that has not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from yaie_engine.config import EngineConfig
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, StepRecord, StepTimes
from yaie_engine.tape import Frame, TapeStep
from yaie_widgets.insights.run import DEFAULT_BUDGET

from .runs import BLOCK, HEAD, asked, by_id, config, figures, insights, node, snapshot, step, table, taped

A = asked("a", (*HEAD, 1, 2, 3), 1, 2, blocks_owned=(0, 1, 2, 3))
B = asked("b", (*HEAD, 7, 8, 9), 4, 5, blocks_owned=(10, 11, 12, 13))
STEPS = [step(n, (name, "prefill", 15)) for n, name in ((1, "a"), (2, "a"), (3, "x"), (4, "b"), (5, "b"))]


def timed(queue: float, prefill: float, decode: float, name: str = "a") -> RequestRecord:
    return replace(A, request_id=name, queue_s=queue, prefill_s=prefill, decode_s=decode)


@pytest.mark.parametrize(
    ("times", "title", "severity"),
    [
        ((6.0, 1.0, 2.0), "The run is queue-bound", "high"),
        ((1.0, 6.0, 2.0), "The run is prefill-bound", "medium"),
        ((1.0, 1.0, 6.0), "The run is decode-bound", "info"),
        ((3.0, 3.0, 3.1), "No phase takes half of the time", "info"),
    ],
)
def test_what_binds_the_run(times: tuple[float, float, float], title: str, severity: str) -> None:
    found = by_id(insights([timed(*times)], STEPS))["bound"]
    assert (found.title, found.severity, found.missing) == (title, severity, None)
    assert sum(figures(found)[name] for name in ("queue", "prefill", "decode")) == pytest.approx(100)


@pytest.mark.parametrize(
    ("batch", "advice", "running"),
    [
        ([(name, "decode", 1) for name in "pqrs"], "Raise --max-num-seqs.", 4),
        ([("p", "prefill", 64)], "Raise --max-num-batched-tokens.", 16),
        ([("p", "decode", 1)], "Raise --num-blocks.", 95),
        ([("p", "decode", 1)], None, 5),
    ],
)
def test_what_a_queue_waits_for(batch: list[tuple[str, str, int]], advice: str | None, running: int) -> None:
    steps = [step(n, *batch) for n in (1, 2, 3)]
    tape = [taped(1, arrived=("w",), tables=(table("p", running, 1),)), taped(2), taped(3)]
    found = by_id(insights([timed(6, 1, 1)], steps, tape))["bound"]
    assert (found.recommendation, figures(found)["passed over"]) == (advice, 2)
    assert found.confidence == ("inferred" if advice else "measured")


def test_without_an_ended_request_nothing_is_guessed() -> None:
    found = by_id(insights((), STEPS))
    for name in ("bound", "first-token", "hit-rate"):
        data = found[name].to_dict()
        assert (data["availability"], data["evidence"], data["recommendation"]) == ("unavailable", [], None)
        assert "ended" in data["missing"]


def test_the_first_token_is_split() -> None:
    steps = [step(1, ("a", "prefill", 8)), step(2, ("a", "prefill", 7)), step(3, ("a", "decode", 1))]
    found = by_id(insights([timed(0.5, 0.1, 0.2)], steps))["first-token"]
    shown = figures(found)
    assert shown["first decode, median"] == pytest.approx(0.003)
    assert shown["prefill, median"] == pytest.approx(0.097)
    assert shown["first token, median"] == shown["first token, worst"] == pytest.approx(0.6)
    assert found.severity == "info" and "place in a step" in found.title


def test_a_first_token_far_above_the_median_is_called_out() -> None:
    records = [timed(0.0, 0.1, 0.0, name) for name in "bcd"] + [timed(3.0, 0.1, 0.0, "slow")]
    steps = [step(1, *((record.request_id, "prefill", 4) for record in records))]
    found = by_id(insights(records, steps))["first-token"]
    assert found.severity == "medium" and found.title.startswith("The first token of slow took 3100 ms")
    assert found.request_ids[0] == "slow"


def test_first_tokens_that_are_no_longer_recorded_are_not_available() -> None:
    found = by_id(insights([timed(1, 1, 1)], [step(9, ("a", "prefill", 3))]))["first-token"]
    assert found.missing == "the steps of the first tokens are no longer recorded"


def cached_run(*, removed_at: int | None = None, namespace: str = "", own: str = "") -> list[TapeStep]:
    """`a` publishes its prompt in step 2; it may leave the tree; `b` publishes in step 5."""
    first = node(1, A.prompt_token_ids, blocks=(0, 1, 2, 3), namespace=namespace)
    second = node(2, B.prompt_token_ids, blocks=(10, 11, 12, 13), namespace=own)
    gone = {removed_at: (1,)}
    kept = {2: (first,), 5: (second,)}
    return [taped(n, nodes=kept.get(n, ()), removed=gone.get(n, ())) for n in range(1, 6)]


def evicting(at: int) -> list[StepRecord]:
    return [replace(each, blocks=replace(each.blocks, evicted=(3,))) if each.step == at else each for each in STEPS]


@pytest.mark.parametrize(
    ("cause", "tape", "steps", "settings", "confidence"),
    [
        ("evicted", cached_run(removed_at=3), evicting(3), config(), "inferred"),
        ("dropped", cached_run(removed_at=3), STEPS, config(), "inferred"),
        ("salt", cached_run(namespace="salt:1", own="salt:2"), STEPS, config(), "inferred"),
        ("unread", cached_run(), STEPS, config(), "inferred"),
        ("unknown", [taped(n) for n in range(1, 6)], STEPS, config(), "inferred"),
        ("off", cached_run(), STEPS, config(enable_prefix_caching=False), "measured"),
    ],
)
def test_reuse_that_should_have_happened(
    cause: str, tape: list[TapeStep], steps: list[StepRecord], settings: EngineConfig, confidence: str
) -> None:
    found = by_id(insights([A, B], steps, tape, settings=settings))
    assert [name for name in found if name.startswith("reuse")] == [f"reuse-{cause}"]
    miss = found[f"reuse-{cause}"]
    assert (miss.confidence, miss.request_ids, figures(miss)["computed again"]) == (confidence, ("b",), 12)
    pair = miss.to_dict()["pairs"][0]
    assert (pair["request_id"], pair["other_id"], pair["equal_tokens"], pair["parts_at_token"]) == ("b", "a", 12, 13)
    assert pair["this"] == "token ids 7 8 9" and pair["other"] == "token ids 1 2 3"


def test_prompts_that_ran_at_the_same_time() -> None:
    other = replace(B, first_step=1, last_step=2, submitted_at=2.0)
    found = by_id(insights([A, other], STEPS, [taped(n) for n in range(1, 6)]))
    assert found["reuse-concurrent"].request_ids == ("b",)
    assert found["reuse-concurrent"].severity == "high"  # 12 of 30 prompt tokens


def test_a_state_model_shares_nothing() -> None:
    seen = snapshot(STEPS, tier="state")
    found = by_id(insights([A, B], STEPS, seen=seen))
    assert found["reuse-state"].confidence == "measured" and found["reuse-state"].recommendation is None


def test_steps_that_are_gone_give_no_cause() -> None:
    tape, base = [taped(n) for n in (9, 10)], Frame(step=8)
    found = by_id(insights([A, B], [step(9, ("x", "decode", 1)), step(10, ("x", "decode", 1))], tape, base=base))
    assert "no longer recorded" in found["reuse-unrecorded"].statement


@pytest.mark.parametrize(
    "records",
    [
        [A, replace(B, num_cached_tokens=12)],  # all of it was taken
        [A, replace(B, num_cached_tokens=9)],  # less than a block is missing
        [A, asked("b", (1, 2, 3, *HEAD), 4, 5)],  # they part at once
        [A, asked("b", HEAD[: BLOCK - 1], 4, 5)],  # no block is shared
        [A, replace(B, first_step=None, last_step=None)],  # it never ran
        [A],
    ],
)
def test_reuse_that_could_not_have_been(records: list[RequestRecord]) -> None:
    found = by_id(insights(records, STEPS, cached_run()))
    assert not [name for name in found if name.startswith("reuse")]


def test_the_next_turn_counts_the_answer() -> None:
    first = replace(A, output_token_ids=((50, 51, 52, 53),))
    turn = asked("b", (*A.prompt_token_ids, 50, 51, 52, 53, 60), 4, 5)
    pair = next(f for f in insights([first, turn], STEPS).findings if f.id.startswith("reuse")).pairs[0]
    assert pair.split.answer_tokens == 4 and pair.split.tokens == 19


def test_preemptions_and_what_they_cost() -> None:
    steps = [*STEPS[:2], replace(STEPS[2], preempted=("a",)), *STEPS[3:]]
    tape = [
        taped(1, arrived=("a",)),
        taped(2, admitted=(("a", 0),), tables=(table("a", 4, 15),)),
        taped(3, left=(("a", "waiting"),)),
        taped(4, admitted=(("a", 4),)),
        taped(5),
    ]
    found = by_id(insights([A], steps, tape))["preemptions"]
    assert figures(found)["preemptions"] == 1 and figures(found)["computed again"] == 11
    assert found.severity == "high" and found.request_ids == ("a",)  # 11 of 75 computed tokens
    assert "preemptions" not in by_id(insights([A], STEPS))


def test_a_pool_too_small_for_what_runs() -> None:
    tape = [taped(1, arrived=("w",), tables=(table("p", 95, 380),)), *(taped(n) for n in (2, 3, 4, 5))]
    found = by_id(insights([A], STEPS, tape))
    assert figures(found["pool"]) == {"short of blocks": 4, "most held": 95, "pool": 100}
    roomy = [taped(1, arrived=("w",), tables=(table("p", 50, 200),)), *(taped(n) for n in (2, 3, 4, 5))]
    assert "pool" not in by_id(insights([A], STEPS, roomy))
    closed = snapshot(STEPS, total=0)
    assert "no blocks" in (by_id(insights([A], STEPS, seen=closed))["pool"].missing or "")


def test_evictions_are_counted() -> None:
    assert figures(by_id(insights([A], evicting(3)))["evictions"])["evicted"] == 1
    assert "evictions" not in by_id(insights([A], STEPS))


@pytest.mark.parametrize(
    ("name", "settings", "seen"),
    [
        ("budget-below-block", config(max_num_batched_tokens=3), snapshot(STEPS, block=16)),
        ("budget-below-seqs", config(max_num_batched_tokens=8, max_num_seqs=9), snapshot(STEPS)),
        ("threshold-above-budget", config(long_prefill_token_threshold=65), snapshot(STEPS)),
        ("pool-below-context", config(), snapshot(STEPS, total=15)),
        ("promises-above-pool", config(max_num_seqs=51), snapshot(STEPS)),
        ("whole-prompts-above-budget", config(enable_chunked_prefill=False, max_num_batched_tokens=8), snapshot(STEPS)),
        ("emulated-kernels", config(), snapshot(STEPS, attention_backend="emulated")),
        ("eager-on-gpu", config(enforce_eager=True), snapshot(STEPS, device="cuda:0")),
    ],
)
def test_settings_that_contradict(name: str, settings: EngineConfig, seen: EngineSnapshot) -> None:
    found = by_id(insights([A], STEPS, settings=settings, seen=seen))
    assert found[name].confidence == "measured" and found[name].missing is None
    plain = by_id(insights([A], STEPS))
    assert name not in plain


def test_promises_matter_more_once_somebody_was_preempted() -> None:
    steps = [*STEPS[:4], replace(STEPS[4], preempted=("a",))]
    found = by_id(insights([A], steps, settings=config(max_num_seqs=51)))["promises-above-pool"]
    assert found.severity == "medium" and found.recommendation is not None


def test_use_of_budget_batch_and_cache() -> None:
    steps = [step(1, ("a", "prefill", 60)), step(2, ("a", "decode", 1), ("b", "decode", 1))]
    found = by_id(insights([A, replace(B, num_cached_tokens=12)], steps))
    assert figures(found["budget-use"]) == {"budget": 64, "mean": 31, "most": 60, "mean use": 48.4375, "full": 1}
    assert figures(found["batch"])["mean"] == 1.5 and found["batch"].severity == "info"
    assert figures(found["hit-rate"]) == {"cached": 12, "prompts": 30, "hit rate": 40}
    tape = [taped(1, arrived=("w",)), taped(2), taped(3)]
    full = [step(n, *((name, "decode", 1) for name in "pqrs")) for n in (1, 2, 3)]
    assert by_id(insights([A], full, tape))["batch"].severity == "medium"


def test_an_engine_that_never_ran() -> None:
    found = insights()
    assert {finding.id for finding in found.findings if finding.missing} >= {"bound", "first-token", "batch"}
    assert all(finding.missing for finding in found.findings)
    json.dumps(found.to_list())


def test_default_budgets_are_the_engine_s() -> None:
    from yaie_engine.runner import DEFAULT_BUDGET as ENGINE_S

    assert DEFAULT_BUDGET == ENGINE_S


def test_a_first_decode_is_never_longer_than_the_prefill() -> None:
    slow = replace(STEPS[0], ms=StepTimes(sample=900.0))
    shown = figures(by_id(insights([timed(0, 0.1, 0)], [slow]))["first-token"])
    assert shown["first decode, median"] == pytest.approx(0.1) and shown["prefill, median"] == 0
