"""Tokens that are delivered late: none of them harms anybody else, and none waits for longer than a short launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.fakes import LONG, Formula, assert_idle, greedy, tokens
from tests.engine.late_device import late
from tests.engine.test_overlap import submitted
from yaie_engine import LLM, SamplingParams
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
