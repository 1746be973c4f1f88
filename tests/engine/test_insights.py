"""Findings on runs of a real engine: the causes that are inferred are the ones that were made."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, greedy, swap_runner
from tests.engine.models import VOCAB
from yaie_engine import LLM, SamplingParams
from yaie_widgets.insights import Finding, Insights, find_insights

HEAD = list(range(20, 36))
"""Four blocks."""


def insights(llm: LLM) -> Insights:
    decode = lambda ids: llm.detokenize(list(ids))  # noqa: E731
    return find_insights(llm.snapshot(), llm.tape(), llm.history(), llm.config, decode=decode)


def findings(llm: LLM) -> dict[str, Finding]:
    return {finding.id: finding for finding in insights(llm).findings}


def reuse(llm: LLM) -> dict[str, tuple[str, ...]]:
    return {name: found.request_ids for name, found in findings(llm).items() if name.startswith("reuse")}


def run(llm: LLM, *prompts: list[int], params: SamplingParams | None = None) -> None:
    """One after the other."""
    for prompt in prompts:
        llm.generate([prompt], params or greedy(4), use_tqdm=False)


def figures(finding: Finding) -> dict[str, float]:
    return {figure.name: figure.value for figure in finding.evidence}


def test_shared_prefixes_that_were_taken_are_no_finding(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    run(llm, [*HEAD, 1], [*HEAD, 2], [*HEAD, 1])
    assert reuse(llm) == {}
    assert figures(findings(llm)["hit-rate"])["cached"] == 32


def test_an_evicted_prefix(make_llm: Make) -> None:
    llm = make_llm(num_blocks=10)
    run(llm, [*HEAD, 1], list(range(60, 90)), [*HEAD, 2])
    found = findings(llm)["reuse-evicted"]
    assert found.request_ids == ("req-2",) and found.recommendation is not None
    assert found.pairs[0].split.tokens == 16 and figures(found)["computed again"] == 16 - found.pairs[0].cached


def test_a_reset_cache(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    run(llm, [*HEAD, 1])
    llm.reset()
    run(llm, [*HEAD, 2])
    assert reuse(llm) == {"reuse-dropped": ("req-1",)}


def test_other_salts(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    run(llm, [*HEAD, 1])
    run(llm, [*HEAD, 2], params=SamplingParams(temperature=0, max_tokens=4, cache_salt="hunter2"))
    assert reuse(llm) == {"reuse-salt": ("req-1",)}
    assert "hunter2" not in insights(llm).text


def test_prompt_logprobs_do_not_read_the_cache(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    run(llm, [*HEAD, 1])
    run(llm, [*HEAD, 2], params=SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=1))
    assert reuse(llm) == {"reuse-unread": ("req-1",)}


def test_caching_that_is_off(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64, enable_prefix_caching=False)
    run(llm, [*HEAD, 1], [*HEAD, 2])
    found = findings(llm)["reuse-off"]
    assert found.confidence == "measured" and found.severity == "high"


def test_prompts_in_the_same_step(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64, long_prefill_token_threshold=0)
    llm._engine.call(lambda: [llm.submit([*HEAD, tail], greedy(4)) for tail in (1, 2)])
    while llm.running():
        pass
    assert reuse(llm) == {"reuse-concurrent": ("req-1",)}


def test_preempted_requests(make_llm: Make) -> None:
    llm = make_llm(num_blocks=14)
    prompts = [[head, 1, 2, 3, *range(tail, tail + 6)] for head in (5, 6) for tail in (10, 20, 30)]
    llm.generate(prompts, greedy(20), use_tqdm=False)
    preempted = sum(len(step.preempted) for step in llm.snapshot().steps)
    found = findings(llm)["preemptions"]
    assert preempted and figures(found)["preemptions"] == preempted == llm.snapshot().counters.preemptions


def test_computed_again_is_what_was_computed_beyond_the_need(make_llm: Make) -> None:
    llm = make_llm(num_blocks=14)
    outputs = llm.generate([[t, *range(10, 19)] for t in range(5)], greedy(20), use_tqdm=False)
    needed = sum(len(o.prompt_token_ids) + 20 - 1 - o.num_cached_tokens for o in outputs)
    extra = llm.snapshot().counters.computed_tokens - needed
    assert figures(findings(llm)["preemptions"])["computed again"] == extra > 0


@pytest.mark.parametrize(("seats", "advice"), [(1, "Raise --max-num-seqs."), (64, None)])
def test_a_queue_is_named_with_its_cause(make_llm: Make, seats: int, advice: str | None) -> None:
    llm = make_llm(num_blocks=200, max_num_seqs=seats)
    llm.generate([[t, 2, 3] for t in range(8)], greedy(16), use_tqdm=False)
    found = findings(llm)["bound"]
    assert found.recommendation == advice
    assert (found.title == "The run is queue-bound") == (seats == 1)


def test_findings_of_an_engine_at_work_and_of_a_closed_one(make_llm: Make) -> None:
    llm = make_llm(num_blocks=400)
    handle = llm.submit([1, 2, 3], greedy(200))
    while not handle.done:
        assert insights(llm).text
    llm.close()
    found = findings(llm)
    assert found["hit-rate"].missing is None and found["pool"].missing is not None


@pytest.mark.parametrize("seed", range(8))
def test_causes_in_random_runs_are_those_that_were_made(make_llm: Make, seed: int) -> None:
    """No cause is found that cannot have been, and none stays unknown while all steps are recorded."""
    rng, made = random.Random(seed), {"evicted", "concurrent"}
    llm = make_llm(num_blocks=rng.choice([12, 16, 200]), max_num_seqs=rng.choice([1, 3, 64]))
    swap_runner(llm, Formula(VOCAB).runner)
    heads = [[rng.randrange(250) for _ in range(rng.randrange(4, 20))] for _ in range(3)]
    for _ in range(8):
        extra: dict[str, object] = {}
        if rng.random() < 0.5 and seed % 3:
            extra = {"cache_salt": rng.choice("ab")} if seed % 3 == 1 else {"prompt_logprobs": 1}
            made.add("salt" if seed % 3 == 1 else "unread")
        params = SamplingParams(temperature=0, max_tokens=rng.randrange(1, 12), **extra)
        tails = [[rng.randrange(250) for _ in range(rng.randrange(1, 6))] for _ in range(rng.randrange(1, 5))]
        for handle in [llm.submit([*rng.choice(heads), *tail], params) for tail in tails]:
            handle.result(LONG)
        if seed % 2 and rng.random() < 0.3:
            llm.reset()
            made.add("dropped")
    causes = Counter(name.removeprefix("reuse-") for name in reuse(llm))
    assert causes.keys() <= made, causes
