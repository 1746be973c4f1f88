"""Host blocks: what the KV blocks lose is kept in RAM, and a preempted request gets its KV back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import assert_idle
from tests.engine.models import Reference
from tests.engine.test_overlap import submitted
from yaie_engine import LLM, ConfigError, ModelLoadError, SamplingParams

LONG = 60.0


def greedy(count: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, **more)


def prompt(start: int, length: int = 40) -> list[int]:
    return [(start + 7 * i) % 250 for i in range(length)]


def ask(llm: LLM, ids: list[int], **more: Any) -> Any:
    output = llm.generate([ids], greedy(4, **more), use_tqdm=False)[0]
    assert output.error is None
    return output


@pytest.mark.parametrize("block_size", [4, 5])
def test_what_was_evicted_comes_back_from_the_host(make_llm: Make, reference: Reference, block_size: int) -> None:
    llm = make_llm(num_blocks=13, block_size=block_size, num_cpu_blocks=64)
    first = ask(llm, prompt(1))
    for start in (2, 3, 4):
        ask(llm, prompt(start))
    again = ask(llm, prompt(1))
    assert again.metrics.reuse == "host" and again.num_cached_tokens == 39
    assert again.outputs[0].token_ids == first.outputs[0].token_ids
    expected = reference.greedy(prompt(1), 4)
    assert list(again.outputs[0].token_ids)[: len(expected)] == expected
    assert any(step.blocks.swapped for step in llm.snapshot().steps)
    once_more = ask(llm, prompt(1))
    assert once_more.metrics.reuse == "radix" and once_more.outputs == again.outputs
    llm.check()


def test_namespaces_stay_apart_and_a_reset_forgets_both(make_llm: Make) -> None:
    llm = make_llm(num_blocks=13, num_cpu_blocks=64)
    for start in (1, 2, 3):
        ask(llm, prompt(start), cache_salt="mine")
    assert ask(llm, prompt(1)).num_cached_tokens == 0
    assert ask(llm, prompt(1), cache_salt="yours").num_cached_tokens == 0
    assert ask(llm, prompt(1), cache_salt="mine").metrics.reuse == "host"
    llm.reset()
    assert llm.host_blocks is not None and llm.host_blocks.free == 64
    assert ask(llm, prompt(1), cache_salt="mine").num_cached_tokens == 0


def test_sleep_gives_host_blocks_back(make_llm: Make) -> None:
    llm = make_llm(num_blocks=13, num_cpu_blocks=64)
    before = [ask(llm, prompt(start)).outputs for start in (1, 2, 3)]
    runner = llm._engine.runner
    assert runner.host.nbytes > 0  # type: ignore[attr-defined]
    llm.sleep(1)
    assert runner.host.nbytes == 0 and llm.host_blocks is not None and llm.host_blocks.free == 64  # type: ignore[attr-defined]
    llm.wake_up()
    for start, expected in zip((1, 2, 3), before, strict=True):
        output = ask(llm, prompt(start))
        assert output.num_cached_tokens == 0 and output.outputs == expected


@pytest.mark.usefixtures("overlap")
@pytest.mark.parametrize("num_cpu_blocks", [64, 6])
@pytest.mark.parametrize("share", [True, False])
def test_swapped_requests_answer_as_undisturbed_ones(make_llm: Make, num_cpu_blocks: int, share: bool) -> None:
    prompts = [prompt(9 * i, 9 + i) for i in range(5)]
    settings = {"num_blocks": 20, "max_num_seqs": 5, "enable_prefix_caching": share}
    quiet = make_llm(num_blocks=200, enable_prefix_caching=share).generate(prompts, greedy(40), use_tqdm=False)
    llm = make_llm(preemption="swap", num_cpu_blocks=num_cpu_blocks, **settings)
    outputs = llm.generate(prompts, greedy(40), use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == [output.outputs[0].token_ids for output in quiet]
    counts = llm.host_blocks
    assert counts is not None and counts.held == 0 and llm.snapshot().counters.preemptions > 0
    assert (counts.swapped > 0) if num_cpu_blocks == 64 else (counts.unswapped > 0)
    if num_cpu_blocks == 64:
        computed = sum(output.metrics.num_computed_tokens for output in outputs)
        assert computed == sum(len(ids) + 39 for ids in prompts), "nothing is computed again"
    llm.check()
    assert_idle(llm)


def test_a_swapped_request_is_seen_and_cancelled(make_llm: Make) -> None:
    llm = make_llm(preemption="swap", num_cpu_blocks=64, num_blocks=32, scheduling_policy="priority", max_num_seqs=1)
    low = llm.submit(prompt(1, 9), greedy(90))
    low_tokens = iter(low)
    next(low_tokens)
    high = llm.submit(prompt(2, 9), greedy(90, priority=5))
    next(iter(high))
    seen = llm.snapshot()
    if seen.queue.decode:  # still running, so that the other waits with its KV in host blocks
        assert seen.queue.swapped == 1 and {view.state for view in seen.requests} == {"swapped", "decode"}
        assert llm.host_blocks is not None and llm.host_blocks.held > 0
    low.cancel()
    assert high.result(LONG).error is None
    low.wait(LONG)
    assert llm.host_blocks is not None and llm.host_blocks.held == 0
    llm.check()


def test_a_copy_that_fails_poisons_nothing(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(num_blocks=13, num_cpu_blocks=64)
    first = [ask(llm, prompt(start)).outputs for start in (1, 2, 3)]

    def broken(pairs: list[tuple[int, int]]) -> None:
        raise RuntimeError("no transfer")

    for which in ("_into", "_out"):
        with monkeypatch.context() as patch:
            patch.setattr(llm._scheduler.host, which, broken)
            failed = llm.generate([prompt(1)], greedy(4), use_tqdm=False)[0]
            assert failed.error is None or "no transfer" in str(failed.error)
        llm.check()
        for start, expected in zip((1, 2, 3), first, strict=True):
            assert ask(llm, prompt(start)).outputs == expected


def test_what_cannot_be_used_is_refused(make_llm: Make) -> None:
    with pytest.raises(ConfigError, match="preemption='swap' needs host blocks"):
        make_llm(preemption="swap")
    with pytest.raises(ConfigError, match="only preemption='swap' has a use"):
        make_llm(num_cpu_blocks=4, enable_prefix_caching=False)
    with pytest.raises(ModelLoadError, match=r"num_cpu_blocks=2000000000 needs .* of RAM are free: the largest"):
        make_llm(num_cpu_blocks=2_000_000_000)


def test_the_source_of_a_copy_is_freed_when_its_leaf_goes_on_from_the_host(make_llm: Make) -> None:
    """One request copies the tail of a leaf in the step in which another one's restored prefix continues that leaf."""
    llm, known = make_llm(num_blocks=13, num_cpu_blocks=64), prompt(1, 12)
    for start in (1, 2, 3, 4):
        ask(llm, prompt(start))
    assert llm.generate([known[:6]], greedy(1), use_tqdm=False)[0].error is None
    outputs = [handle.result(LONG) for handle in submitted(llm, [([*known[:5], 99], greedy(4)), (known, greedy(4))])]
    assert [output.error for output in outputs] == [None, None]
    assert outputs[1].metrics.reuse == "host"
    assert_idle(llm)
