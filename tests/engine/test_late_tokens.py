"""Tokens that are delivered late: none of them harms anybody else, and none waits for longer than a short launch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, assert_idle, greedy, tokens
from tests.engine.late_device import late
from tests.engine.test_overlap import submitted
from yaie_engine import LLM, Generation, SamplingParams
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.plan import StepPlan
from yaie_engine.snapshot import StepRecord

Act = Callable[[LLM, str], Any]
ACTS: dict[str, Act] = {
    "nothing": lambda llm, request_id: None,
    "look": lambda llm, request_id: llm._engine._inbox.put(lambda: None),
    "cancel": lambda llm, request_id: llm._engine.cancel(request_id),
}


class Broken:
    """A tokenizer that fails for ever for all choices of some requests, from a chosen moment on."""

    def __init__(self, patch: pytest.MonkeyPatch, llm: LLM) -> None:
        self.on, self.ids, self.requests = False, set[str](), llm._engine.requests
        push = Detokenizer.push

        def faulty(detokenizer: Detokenizer, token_id: int, is_end: bool = False) -> str:
            if self.on and any(detokenizer is choice.detokenizer for choice in self._choices()):
                raise ValueError("planted")
            return push(detokenizer, token_id, is_end=is_end)

        patch.setattr(Detokenizer, "push", faulty)

    def _choices(self) -> list[Any]:
        return [choice for name in self.ids & self.requests.keys() for choice in self.requests[name].choices]


@pytest.mark.parametrize("at", [1, 2, 6])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_request_whose_tokens_all_fail_harms_nobody(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, overlap: bool, n: int, act: str, at: int
) -> None:
    """Whether its late tokens are delivered while a step runs, before an action, or by the end of the request."""
    broken = Broken(monkeypatch, llm)
    with late(llm, overlap=overlap) as device:
        first = llm.snapshot().step
        names: list[str] = []

        def before(plan: StepPlan) -> None:
            broken.ids.update(names[1:2])
            broken.on = broken.on or plan.step >= first + at
            ACTS[act](llm, names[1])

        device.before = before
        several = SamplingParams(n=n, temperature=0, max_tokens=12, ignore_eos=True)
        asks = [([1, 2, 3], greedy(12, ignore_eos=True)), ([4, 5], several), ([6, 7], greedy(9, ignore_eos=True))]
        handles = submitted(llm, asks, names)
        outputs = [handle.result(LONG) for handle in handles]
    for index in (0, 2):
        assert outputs[index].error is None
        wanted = asks[index][1].max_tokens
        assert tokens(outputs[index]) == Formula(0).greedy(asks[index][0], wanted or 0)
    error, reasons = outputs[1].error, {choice.finish_reason for choice in outputs[1].outputs}
    assert reasons == {"error"} and "planted" in str(error) if error else reasons == {"cancelled"} and act == "cancel"
    assert llm.state == "ready"
    assert_idle(llm)


@pytest.mark.parametrize("overlap", [False, True])
def test_who_follows_gets_every_step_once_and_with_all_of_its_times(llm: LLM, overlap: bool) -> None:
    """Asked at every moment at which something is recorded, delivered or launched."""
    engine = llm._engine
    first = llm.snapshot().step
    seen: list[StepRecord] = []

    def poll(*_: Any) -> None:
        seen.extend(engine.recorder.since(seen[-1].step if seen else first)[1])

    def polled(owner: Any, name: str) -> None:
        function = getattr(owner, name)
        patch.setattr(owner, name, lambda *args: (poll(), function(*args), poll())[1])

    with late(llm, overlap=overlap) as device, pytest.MonkeyPatch.context() as patch:
        device.before = poll
        for owner, name in ((engine.delivery, "accept"), (engine.recorder, "step"), (engine.recorder, "timed")):
            polled(owner, name)
        for handle in submitted(llm, [([i, 2, 3], greedy(9 + i, ignore_eos=True)) for i in range(3)]):
            handle.result(LONG)
        llm._engine.call(poll)
    assert seen == [record for record in llm.snapshot().steps if record.step > first]
    assert [record.step for record in seen] == list(range(first + 1, seen[-1].step + 1)) and len(seen) >= 11


SITUATIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "chunks of a long prompt beside decodes": ({}, [3, 30]),
    "an admission when somebody has ended": ({"max_num_seqs": 2}, [3, 3, 3, 3]),
    "decodes without graphs": ({}, [3, 3]),
    "decodes as graphs": ({}, [3, 3]),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_token_waits_for_no_launch_that_takes_its_time(make_llm: Make, situation: str) -> None:
    """At each launch but a replay all text is with its readers; it may go on for as long as it wants."""
    settings, lengths = SITUATIONS[situation]
    llm = make_llm(**settings)
    letter = llm.tokenizer.encode("a")[-1]
    handles: list[Generation] = []
    read: Counter[str] = Counter()
    behind = {True: 0, False: 0}

    def before(plan: StepPlan) -> None:
        for handle in handles:
            read[handle.request_id] += len("".join(text for _, text in handle.pending()))
        fast = not device.slow and all(entry.kind == "decode" for entry in plan.batch)
        behind[fast] += any(e.seq.num_output_tokens != read[e.seq.request_id] for e in plan.batch)

    with late(llm, lambda ids: letter) as device:
        device.before = before
        device.slow = situation == "decodes without graphs"
        asks = [([i] * length, greedy(9 + 2 * i, ignore_eos=True)) for i, length in enumerate(lengths, 1)]
        hold = threading.Event()
        llm._engine._inbox.put(lambda: hold.wait(LONG) and None)
        handles += [llm.submit(prompt, params) for prompt, params in asks]
        hold.set()
        assert all(handle.result(LONG).error is None for handle in handles)
    assert behind[False] == 0
    assert behind[True] > 2 or device.slow, "behind a replay the text is passed on while the step runs"


def test_a_launch_of_a_third_of_a_second_does_not_hold_the_delta(llm: LLM) -> None:
    letter = llm.tokenizer.encode("a")[-1]
    came: list[float] = []
    launched: list[float] = []

    def before(plan: StepPlan) -> None:
        launched.append(time.monotonic())
        if len(launched) == 4:
            time.sleep(0.3)

    with late(llm, lambda ids: letter) as device:
        device.slow, device.before = True, before
        for _ in llm.submit([1, 2, 3], greedy(8, ignore_eos=True)):
            came.append(time.monotonic())
    assert len(came) == 8 and came[2] < launched[3] + 0.2 < launched[4]


@pytest.mark.parametrize("overlap", [False, True])
def test_whoever_looks_at_any_moment_sees_figures_that_agree(llm: LLM, overlap: bool) -> None:
    """From another thread nobody waits for the late half of a step: a token counts when it is delivered."""
    handles: list[Generation] = []
    problems: list[str] = []
    behind: list[bool] = []
    before_all = llm.snapshot().counters.generated_tokens

    def look(*_: Any) -> None:
        counted = 0
        for handle in handles:
            if (now := handle.progress()) is None:
                continue
            (facts,) = [one for one in llm.steps_since(0).requests if one.label == handle.request_id] or [now.facts]
            counted += facts.num_output_tokens
            if facts.num_output_tokens != now.facts.num_output_tokens:
                problems.append("two views differ")
            if (facts.num_output_tokens == 0) != (facts.ttft_s is None) or (
                now.tpot_s is not None and facts.num_output_tokens < 2
            ):
                problems.append(f"{facts.num_output_tokens} tokens, the first after {facts.ttft_s}, {now.tpot_s}")
            choice = llm._engine.requests[handle.request_id].choices[0]
            behind.append(choice.seq.num_output_tokens > facts.num_output_tokens)
        if len(llm._engine.requests) == len(handles) and counted != llm._engine.totals.generated_tokens - before_all:
            problems.append("the totals differ")

    with late(llm, overlap=overlap) as device, pytest.MonkeyPatch.context() as patch:
        start = llm._engine.sampler.start
        patch.setattr(
            llm._engine.sampler, "start", lambda *args: (lambda wait: lambda: (look(), wait())[1])(start(*args))
        )
        device.before = look
        hold = threading.Event()
        llm._engine._inbox.put(lambda: hold.wait(LONG) and None)
        handles += [llm.submit([i, 2, 3], greedy(9 + i, ignore_eos=True)) for i in range(3)]
        hold.set()
        for handle in handles:
            handle.result(LONG)
    assert problems == [] and any(behind) == overlap
