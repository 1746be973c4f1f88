"""A forward that runs out of memory is tried again in smaller steps; what can never run fails with the numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, ask, assert_idle, greedy, tokens
from tests.engine.models import Reference
from yaie_engine import LLM, YaieError
from yaie_engine.errors import DeviceMemoryError
from yaie_engine.plan import StepPlan
from yaie_engine.runner import ModelRunner
from yaie_engine.sampler import Sampler
from yaie_engine.tiers.flat import FlatTier

pytestmark = pytest.mark.usefixtures("overlap")
PROMPTS = [list(range(1, 40)), [9, 8, 7], list(range(60, 81)), [5]]


class SmallMemory:
    """A forward with more than `room` tokens, or with a sequence that holds `poison`, does not fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int, poison: int = -1) -> None:
        self.room, self.poison = room, poison
        self.steps: list[int] = []
        self.refused = 0
        forward = FlatTier.run

        def run(tier: FlatTier, plan: StepPlan, prompt_ids: Collection[int] = ()) -> Any:
            if plan.num_tokens > self.room or any(self.poison in entry.seq.token_ids for entry in plan.batch):
                self.refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
            self.steps.append(plan.num_tokens)
            return forward(tier, plan, prompt_ids)

        monkeypatch.setattr(FlatTier, "run", run)


def run_all(llm: LLM) -> list[Any]:
    handles = [llm.submit(prompt, greedy(8)) for prompt in PROMPTS]
    return [handle.result(LONG) for handle in handles]


@pytest.mark.parametrize("room", [1, 2, 5, 16])
@pytest.mark.parametrize("chunked", [True, False])
def test_smaller_steps_give_the_same_answers(
    make_llm: Make, reference: Reference, monkeypatch: pytest.MonkeyPatch, room: int, chunked: bool
) -> None:
    llm = make_llm(long_prefill_token_threshold=0, num_blocks=64, enable_chunked_prefill=chunked)
    memory = SmallMemory(monkeypatch, room)
    outputs = run_all(llm)
    assert memory.refused > 0 and max(memory.steps, default=0) <= room
    for output, prompt in zip(outputs, PROMPTS, strict=True):
        if chunked or len(prompt) <= room:
            assert output.error is None
            assert tokens(output) == reference.greedy(prompt, 8)
        else:
            assert isinstance(output.error, DeviceMemoryError)
    assert_idle(llm)
    memory.room = 10**6
    assert tokens(ask(llm, PROMPTS[0], greedy(8))) == reference.greedy(PROMPTS[0], 8)


def test_the_request_that_never_fits_fails_alone_and_says_the_numbers(
    make_llm: Make, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm(num_blocks=64)
    SmallMemory(monkeypatch, 10**6, poison=70)
    outputs = run_all(llm)
    error = outputs[2].error
    assert isinstance(error, YaieError)
    assert "with 1 tokens of 1 sequences ran out of memory" in str(error)
    assert "GiB are free on cpu (CUDA out of memory)" in str(error)
    for index in (0, 1, 3):
        assert outputs[index].error is None
        assert tokens(outputs[index]) == reference.greedy(PROMPTS[index], 8)
    assert_idle(llm)


def test_the_budget_grows_back(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(long_prefill_token_threshold=0, num_blocks=64)
    memory = SmallMemory(monkeypatch, 10)
    ask(llm, PROMPTS[0], greedy(1))
    low, full = llm._scheduler.budget, llm._scheduler.limits.max_num_batched_tokens
    assert low < 20 < full
    memory.room = 10**6
    ask(llm, [200, 201], greedy(30, ignore_eos=True))
    assert low + 25 < llm._scheduler.budget <= full


def test_tensors_of_the_forward_are_free_when_the_next_step_is_made(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error must not keep the frames, and with them the memory, of the forward that failed."""
    import weakref

    kept: list[Any] = []
    forward = FlatTier._forward

    def failing(tier: FlatTier, *arguments: Any) -> Any:
        if not kept:
            large = torch.zeros(1000)
            kept.append(weakref.ref(large))
            raise torch.OutOfMemoryError("planted")
        assert kept[0]() is None
        return forward(tier, *arguments)

    llm = make_llm()
    monkeypatch.setattr(FlatTier, "_forward", failing)
    assert ask(llm, [1, 2, 3]).error is None
    assert isinstance(llm._engine.runner, ModelRunner)


class SmallSampler:
    """Sampling more than `room` rows does not fit; scoring a prompt for the first time neither."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.refused: list[str] = []
        start, score = Sampler.start, Sampler.prompt_logprobs

        def refuse(what: str) -> None:
            self.refused.append(what)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

        def small(sampler: Sampler, logits: torch.Tensor, rows: Any) -> Any:
            if len(rows) > room:
                refuse("sample")
            return start(sampler, logits, rows)

        def first(sampler: Sampler, *arguments: Any) -> Any:
            if "score" not in self.refused:
                refuse("score")
            return score(sampler, *arguments)

        monkeypatch.setattr(Sampler, "start", small)
        monkeypatch.setattr(Sampler, "prompt_logprobs", first)


@pytest.mark.parametrize("room", [1, 2])
def test_sampling_in_smaller_steps_gives_the_same_answers(
    make_llm: Make, reference: Reference, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    llm = make_llm(num_blocks=64)
    memory = SmallSampler(monkeypatch, room)
    outputs = run_all(llm)
    assert "sample" in memory.refused
    for output, prompt in zip(outputs, PROMPTS, strict=True):
        assert output.error is None
        assert tokens(output) == reference.greedy(prompt, 8)
    assert_idle(llm)


def test_a_prompt_is_scored_again_in_a_smaller_step(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    params = greedy(4, prompt_logprobs=1)
    expected = ask(make_llm(num_blocks=64), PROMPTS[0], params)
    memory = SmallSampler(monkeypatch, 10**6)
    found = ask(make_llm(num_blocks=64), PROMPTS[0], params)
    assert memory.refused == ["score"]
    assert found.error is None and tokens(found) == tokens(expected)
    assert found.prompt_logprobs is not None and expected.prompt_logprobs is not None
    assert len(found.prompt_logprobs) == len(expected.prompt_logprobs)
    for mine, plain in zip(found.prompt_logprobs, expected.prompt_logprobs, strict=True):
        assert (mine is None) == (plain is None) and set(mine or ()) == set(plain or ())


def test_a_row_that_can_never_be_sampled_fails_alone_and_says_the_numbers(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm(num_blocks=64)
    with monkeypatch.context() as patch:
        SmallSampler(patch, 0)
        outputs = run_all(llm)
    for output in outputs:
        assert isinstance(output.error, DeviceMemoryError)
        assert "GiB are free on cpu (CUDA out of memory)" in str(output.error)
    assert llm.state == "ready"
    assert ask(llm, PROMPTS[0], greedy(2)).error is None
