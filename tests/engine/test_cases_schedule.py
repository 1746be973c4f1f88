"""Public bug reports, cases 6 to 10: leaving early, preemption, priorities, leaks."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, ask, assert_idle, eventually, greedy, streamed, tokens
from tests.engine.models import Reference
from yaie_engine import LLM


def test_case_06_a_reader_that_leaves_stops_the_request(make_llm: Make) -> None:
    llm = make_llm()
    params = greedy(110, ignore_eos=True)
    stream = iter(llm.submit([1, 2, 3], params))
    assert len(list(itertools.islice(stream, 3))) == 3
    del stream  # the handle goes with it
    eventually(lambda: not llm.running())
    assert_idle(llm)
    assert llm.snapshot().counters.requests == {"cancelled": 1}
    assert 3 <= len(llm.history()[-1].output_token_ids[0]) < 110


def test_case_06_a_closed_request_without_a_reader_stops(llm: LLM) -> None:
    handle = llm.submit([1, 2, 3], greedy(110, ignore_eos=True))
    assert next(iter(handle))
    handle.close()
    output = handle.result(LONG)
    assert output.outputs[0].finish_reason == "cancelled" and output.finished and output.error is None
    assert 0 < len(tokens(output)) < 110
    assert_idle(llm)


def test_case_08_preempted_requests_lose_nothing(make_llm: Make, reference: Reference) -> None:
    prompts = [[10 * i + j for j in range(9)] for i in range(6)]
    params = greedy(60)
    small, large = make_llm(), make_llm(num_blocks=256)
    handles = [small.submit(prompt, params) for prompt in prompts]
    for prompt, handle in zip(prompts, handles, strict=True):
        text = "".join(str(delta) for delta in handle)
        output, roomy = handle.result(LONG), ask(large, prompt, params)
        assert tokens(output) == tokens(roomy) == reference.greedy(prompt, 60)
        assert output.outputs[0].finish_reason == roomy.outputs[0].finish_reason
        assert text == output.outputs[0].text == roomy.outputs[0].text
    counters = small.snapshot().counters
    assert counters.preemptions > 0 and large.snapshot().counters.preemptions == 0
    assert sum(output.num_preemptions for output in small.history()) == counters.preemptions
    assert_idle(small)


@pytest.mark.parametrize("how", [{}, {"preemption": "swap", "num_cpu_blocks": 64}], ids=["recompute", "swap"])
def test_case_09_priority_preemption(make_llm: Make, reference: Reference, how: dict[str, Any]) -> None:
    llm = make_llm(max_num_seqs=5, **how)
    low = [[10 * i + j for j in range(9)] for i in range(4)]
    high = list(range(100, 120))
    handles = [llm.submit(prompt, greedy(60, ignore_eos=True)) for prompt in low]
    eventually(lambda: llm.snapshot().queue.decode == 4)
    together = threading.Event()
    llm._engine.before_next(lambda: together.wait(LONG))  # or a step in between takes the one place that is left
    late = [llm.submit([70 + i] * 9, greedy(20, ignore_eos=True)) for i in range(3)]
    first = llm.submit(high, greedy(40, ignore_eos=True, priority=1))
    together.set()
    output = first.result(LONG)
    assert len(tokens(output)) == 40 and output.metrics.num_preemptions == 0
    assert tokens(output)[:10] == reference.greedy(high, 10)
    for handle in (*handles, *late):
        handle.wait(LONG)
    records = {record.request_id: record for record in llm.history()}
    assert all(records[first.request_id].first_step < records[each.request_id].first_step for each in late)  # type: ignore[operator]
    for prompt, handle in zip(low, handles, strict=True):
        result = handle.result(LONG)
        assert len(tokens(result)) == 60
        expected = reference.greedy(prompt, 60)
        assert tokens(result)[: len(expected)] == expected
    assert llm.snapshot().counters.preemptions > 0
    assert_idle(llm)


def test_case_10_many_short_requests_leak_no_block(make_llm: Make) -> None:
    llm = make_llm(max_num_seqs=16)
    before = llm.snapshot().blocks
    prompts = [[i % 7, i % 11, i % 13, i % 17, i % 19] for i in range(500)]
    outputs = llm.generate(prompts, greedy(2), use_tqdm=False)
    assert all(output.finished and output.error is None for output in outputs)
    assert_idle(llm)
    llm.reset()
    assert llm.snapshot().blocks == before
    assert len(llm.snapshot().tree) == 1
    assert not llm._engine._by_sequence and not llm._engine.requests


def test_streaming_and_waiting_give_the_same(llm: LLM) -> None:
    params = greedy(20)
    for start in range(5):
        prompt = list(range(start * 20, start * 20 + 11))
        _, output = streamed(llm, prompt, params)
        assert output.outputs == ask(llm, prompt, params).outputs
