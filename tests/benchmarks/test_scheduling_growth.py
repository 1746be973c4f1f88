"""The benchmark of growth runs, and what it promises holds by count: of calls, which no load changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks import scheduling_growth, scheduling_share
from benchmarks.scheduling_cost import POLICIES
from benchmarks.scheduling_growth import Growth, Stepping
from yaie_engine import LLM, SamplingParams
from yaie_engine.errors import RequestError
from yaie_engine.generation import Generation
from yaie_engine.prompts import check_ids
from yaie_engine.radix_tree import RadixTree


class Number(int):
    """As an id, an int of a kind of its own is as good as any."""


def calls(work: Callable[[], object]) -> int:
    """Functions, those in C too, that are entered while `work` runs on this thread."""
    found = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def _keep(handles: list[Generation], llm: LLM, prompt: list[int], params: SamplingParams) -> None:
    handles.append(llm.submit(prompt, params))


def stepping(running: int, nodes: int) -> Stepping:
    bare = Stepping(nodes + running * 8, running + 1024)
    for i in range(running):
        bare.add([i, i], 10**5)
    bare.step()
    bare.cache(nodes)
    for _ in range(scheduling_growth.SIZE):  # to the same place in a block
        bare.whole_step()
    return bare


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    scheduling_growth.print_growth(scheduling_growth.measure([128, 256], [10, 40], [2, 4]))
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.endswith(("ok", "OVER"))]
    assert len(rows) == 4 + len(POLICIES) and all(len(re.findall(r"\d+\.\d", row)) == 3 for row in rows)


@pytest.mark.parametrize(
    ("found", "flat", "verdict"),
    [
        ([1.0, 2.4, 5.5], False, "ok"),
        ([1.0, 2.6, 5.5], False, "OVER"),
        ([1.0, 1.1, 1.2], True, "ok"),
        ([1.0, 2.0, 4.0], True, "OVER"),  # linear, where it must not grow at all
    ],
)
def test_growth_beyond_the_target_is_said(found: list[float], flat: bool, verdict: str) -> None:
    row = Growth("table", "what", (10, 20, 40), tuple(found), flat)
    assert str(row).split()[-1] == verdict


def test_steps_do_the_same_whatever_is_cached() -> None:
    few, many = (calls(stepping(16, nodes).whole_step) for nodes in (20, 2000))
    assert many <= few * 1.2


def test_steps_grow_no_faster_than_what_runs() -> None:
    few, many = (calls(stepping(running, 20).whole_step) for running in (32, 64))
    assert many <= few * scheduling_growth.TARGET


def test_prompts_are_matched_by_runs_of_tokens() -> None:
    """Twice the tokens of one node take twice as many comparisons of slices, and none of single tokens."""

    def cost(tokens: int) -> int:
        bare = Stepping(tokens, 8)
        bare.add(list(range(tokens)), 1)
        bare.step()
        tree: RadixTree = bare.scheduler.tree
        return calls(lambda: tree.match(list(range(tokens))))

    assert cost(16_000) <= cost(8_000) * scheduling_growth.TARGET < 1000


def test_ids_of_a_prompt_are_not_checked_one_by_one() -> None:
    ids = [*range(400)] * 10
    assert calls(lambda: check_ids("prompt", ids, 400)) < 20
    for bad in (400, -1, True, 2.0, None):
        with pytest.raises(RequestError, match=re.escape(f"prompt[4000]={bad!r}")):
            check_ids("prompt", [*ids, bad], 400)
    assert check_ids("prompt", (Number(7), 3), 400) == [7, 3]
    assert check_ids("prompt", [], 400) == []


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("tiny", max_num_seqs=4) as llm:
        yield llm


def test_a_long_prompt_is_taken_in_as_few_calls_as_a_short_one(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=1)
    found: list[int] = []
    handles: list[Generation] = []
    for tokens in (100, 100, 1500):  # what the first one does once is not counted
        prompt = [*range(300, 400)] * (tokens // 100)
        found.append(calls(partial(_keep, handles, llm, prompt, params)))
        handles.pop().cancel()
    assert found[2] <= found[1] * 1.2


def test_the_share_covers_the_whole_step(llm: LLM) -> None:
    """Phases and rest are the processor time of a step, and the engine's own clock is back afterwards."""
    clock, step = llm._engine._clock, llm._engine.step
    found = scheduling_share.phases(llm, 4)
    assert llm._engine._clock is clock and llm._engine.step == step
    llm.check()
    assert list(found) == list(scheduling_share.PHASES)
    assert all(found[name] > 0 for name in scheduling_share.PHASES if name != "rest")
