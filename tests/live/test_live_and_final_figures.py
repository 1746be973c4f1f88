"""The figures of a request while it runs and after its end are the same ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.engine.fakes import eventually
from yaie_engine import LLM, SamplingParams
from yaie_magic.completion import Completion
from yaie_magic.feed import RunFeed
from yaie_magic.run import Run

LONG = "long words here and there again " * 150
SHORT = "Once upon a time there was a fox in the wood and it was happy"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=512, max_num_batched_tokens=16) as made:
        yield made


Submit = Callable[[str, SamplingParams], Run]


@pytest.fixture
def submit(llm: LLM) -> Iterator[Submit]:
    runs: list[Run] = []

    def make(prompt: str, params: SamplingParams) -> Run:
        runs.append(Run(llm.submit(prompt, params), llm, prompt, params))
        return runs[-1]

    yield make
    for run in runs:
        run.cancel()
        run.settle()


def test_a_stop_in_the_prefill_keeps_what_was_computed(submit: Submit) -> None:
    run = submit(LONG, SamplingParams(max_tokens=50))
    feed = RunFeed(run)
    eventually(lambda: feed.look(False).bar[1] >= 32)
    live = feed.look(False).bar
    run.cancel()
    run.settle()
    row, output = feed.look(False), run.output
    assert output is not None and not output.outputs[0].token_ids
    assert row.bar[1] == output.metrics.num_computed_tokens >= live[1] and row.bar[0] == live[0] == 0
    assert row.parts == ("0 cached", f"{output.metrics.num_computed_tokens} computed")
    again = submit(LONG, SamplingParams(max_tokens=50))
    feed = RunFeed(again)
    eventually(lambda: feed.look(False).bar[1] >= 16)
    live = feed.look(False).bar
    again.cancel()
    again.settle()
    assert again.output is not None and live[0] == again.output.num_cached_tokens > 0
    assert feed.look(False).bar[:2] == (live[0], again.output.metrics.num_computed_tokens)


def test_all_choices_of_a_request_tell_of_its_one_prompt(submit: Submit) -> None:
    run = submit(SHORT, SamplingParams(max_tokens=400, ignore_eos=True, n=3, temperature=1.0))
    feeds = [RunFeed(run, index) for index in range(3)]
    eventually(lambda: all(feed.look(False).state == "decode" for feed in feeds))
    live = [(row.parts, row.bar[:2]) for row in (feed.look(False) for feed in feeds)]
    run.cancel()
    run.settle()
    assert live == [(row.parts, row.bar[:2]) for row in (feed.look(False) for feed in feeds)]
    assert len(set(live)) == 1


def test_the_usage_of_a_running_completion_is_what_is_known(submit: Submit, llm: LLM) -> None:
    run = submit(SHORT, SamplingParams(max_tokens=2000, ignore_eos=True))
    completion = Completion(run)
    eventually(lambda: completion.usage.completion > 2)
    before = completion.usage
    time.sleep(0.05)
    assert before.prompt == len(llm.tokenize(SHORT)) and completion.usage.completion > before.completion
    assert not completion.done
    run.cancel()
    run.settle()
    after = completion.usage
    assert (after.prompt, after.cached) == (before.prompt, before.cached) and after.completion >= before.completion
