"""How far a live request is, as another thread reads it while the engine works."""

from __future__ import annotations

import gc
import time
from typing import Any

from yaie_engine import LLM, SamplingParams


def until(seen: Any, seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.001)
    return found


def test_a_request_is_followed_from_the_queue_to_its_end(make_llm: Any) -> None:
    llm: LLM = make_llm(max_num_seqs=1, num_blocks=64, max_num_batched_tokens=16)
    long = SamplingParams(max_tokens=150, ignore_eos=True, temperature=0)
    first, second, third = (llm.submit([n, *range(100)], long) for n in range(3))
    until(lambda: (now := first.progress()) and now.facts.state == "decode")
    assert [until(each.progress).ahead for each in (second, third)] == [0, 1]
    assert until(second.progress).facts.state == "waiting"
    running = until(first.progress)
    assert running.num_computed_tokens >= 101 and running.prefill_end == 101 and running.max_tokens == 150
    assert running.facts.num_prompt_tokens == 101 and running.facts.num_cached_tokens == 0
    later = until(lambda: (now := first.progress()) and now.facts.num_output_tokens > 5 and now)
    assert later.tpot_s is not None and later.tpot_s > 0 and later.elapsed_s > later.facts.ttft_s
    first.cancel()
    assert until(lambda: (now := third.progress()) and now.ahead == 0 and now)
    for each in (second, third):
        each.cancel()
    first_step, last_step = (getattr(first.result().metrics, name) for name in ("first_step", "last_step"))
    assert first_step == 1 and last_step > 7


def test_a_prefill_counts_up(make_llm: Any) -> None:
    llm: LLM = make_llm(num_blocks=64, max_num_batched_tokens=8)
    handle = llm.submit([i % 250 for i in range(200)], SamplingParams(max_tokens=1))
    seen = set()
    while not handle.done:
        if (now := handle.progress()) is not None and now.facts.state == "prefill":
            seen.add(now.num_computed_tokens)
    assert len(seen) > 1 and max(seen) < 200


def test_it_keeps_nothing_alive(make_llm: Any) -> None:
    llm: LLM = make_llm(num_blocks=16)
    handle = llm.submit([1, 2, 3], SamplingParams(max_tokens=2))
    handle.result()
    llm.generate([[4, 5]], SamplingParams(max_tokens=1), use_tqdm=False)  # the engine's own frames move on
    gc.collect()
    assert handle.progress() is None


def test_what_has_arrived_is_read_without_waiting(make_llm: Any) -> None:
    llm: LLM = make_llm(num_blocks=16)
    handle = llm.submit("abc", SamplingParams(max_tokens=20, ignore_eos=True, temperature=0))
    pieces = []
    while not handle.done:
        pieces += handle.pending()
    pieces += handle.pending()
    assert "".join(text for _, text in pieces) == handle.result().outputs[0].text
    assert handle.pending() == [] and list(handle) == [], "the end stays readable"
