"""Logits that are no numbers, or of a wrong shape: the request fails with a reason, never with garbage text."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch

from tests.engine.fakes import LONG, Formula, ask, swap_runner, tokens
from tests.engine.models import Reference
from tests.engine.test_faults import PLAIN, A, B, assert_healthy, assert_right, run_all
from yaie_engine import LLM, SamplingParams, YaieError
from yaie_engine.batch import RunnerOutput
from yaie_engine.plan import StepPlan


class BadLogits:
    """The engine's own runner, whose logits are spoilt at one step for one prompt."""

    def __init__(self, runner: Any, spoil: Callable[[torch.Tensor, int], Any], prompt: list[int], at: int) -> None:
        self.runner, self.spoil, self.prompt, self.at = runner, spoil, prompt, at

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> Any:
        output = self.runner.run(plan, prompt_logit_ids)
        for i, entry in enumerate(plan.sampling):
            if entry.seq.token_ids[: len(self.prompt)] == self.prompt and entry.seq.num_output_tokens == self.at:
                return RunnerOutput(self.spoil(output.logits.clone(), i), output.prompt_logits)
        return output

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        self.runner.prepare(plan, prompt_logit_ids)

    changed = False

    def renewed(self, begins: bool) -> bool:
        return False

    def replays(self, num_decodes: int) -> bool:
        return bool(self.runner.replays(num_decodes))

    def close(self) -> None:
        self.runner.close()


def fill(value: float) -> Callable[[torch.Tensor, int], torch.Tensor]:
    def spoil(logits: torch.Tensor, i: int) -> torch.Tensor:
        logits[i] = value
        return logits

    return spoil


def one_value(value: float) -> Callable[[torch.Tensor, int], torch.Tensor]:
    def spoil(logits: torch.Tensor, i: int) -> torch.Tensor:
        logits[i, 77] = value
        return logits

    return spoil


SPOILT_ROWS = {
    "all NaN": (fill(math.nan), "NaN"),
    "one NaN": (one_value(math.nan), "NaN"),
    "all +inf": (fill(math.inf), "infinite|no token"),
    "one +inf": (one_value(math.inf), "infinite"),
    "all -inf": (fill(-math.inf), "no token"),
}
SPOILT_SHAPES = {
    "narrow": lambda logits, i: logits[:, :-1],
    "wide": lambda logits, i: torch.cat([logits, logits[:, :1]], dim=1),
    "a row too few": lambda logits, i: logits[:-1],
    "a row too many": lambda logits, i: torch.cat([logits, logits[:1]]),
    "flat": lambda logits, i: logits.flatten(),
    "none": lambda logits, i: None,
    "a list": lambda logits, i: logits.tolist(),
}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("name", SPOILT_ROWS)
@pytest.mark.parametrize("sampled", [False, True])
def test_logits_that_are_no_numbers_fail_their_request(
    llm: LLM, formula: Formula, name: str, at: int, sampled: bool
) -> None:
    spoil, reason = SPOILT_ROWS[name]
    good = llm._engine.runner
    swap_runner(llm, BadLogits(good, spoil, A, at))
    params = SamplingParams(max_tokens=8, temperature=0.8, seed=1, ignore_eos=True) if sampled else PLAIN
    bad, fine = (handle.result(LONG) for handle in [llm.submit(A, params), llm.submit(B, PLAIN)])
    llm._engine.runner = good
    assert bad.error is not None and bad.outputs[0].finish_reason == "error" and len(tokens(bad)) == at
    with pytest.raises(YaieError, match=reason):
        raise bad.error
    assert_right(fine, B, formula)
    assert_healthy(llm, formula)


@pytest.mark.parametrize("name", SPOILT_SHAPES)
def test_logits_of_a_wrong_shape_fail_the_step(llm: LLM, formula: Formula, name: str) -> None:
    good = llm._engine.runner
    swap_runner(llm, BadLogits(good, SPOILT_SHAPES[name], A, 2))
    outputs = run_all(llm)
    llm._engine.runner = good
    assert outputs[0].error is not None and outputs[0].outputs[0].finish_reason == "error"
    assert_healthy(llm, formula)


def test_damaged_kv_is_not_kept(llm: LLM, reference: Reference) -> None:
    """A step that gives NaN leaves NaN in the cache: the prompt, asked again, must not find it there."""
    good = llm._engine.runner

    def damage(logits: torch.Tensor, i: int) -> torch.Tensor:
        for key, value in good.cache.layers.values():
            key.fill_(math.nan)
            value.fill_(math.nan)
        return fill(math.nan)(logits, i)

    with torch.inference_mode():
        swap_runner(llm, BadLogits(good, damage, A, 2))
        bad = llm.submit(A, PLAIN).result(LONG)
    llm._engine.runner = good
    assert bad.error is not None
    again = ask(llm, A, PLAIN)
    assert again.num_cached_tokens == 0
    assert tokens(again) == reference.greedy(A, 8)
