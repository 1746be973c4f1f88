"""The kernels that an engine runs can each be checked for it: cases cover every specialisation that `tiny` loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch

from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.lab.cases import BUILDERS, cases_of
from yaie_cuda.lab.request import ModelSizes
from yaie_cuda.lab.trial import Trial
from yaie_engine import LLM, SamplingParams
from yaie_engine.kernel_exchange import launched, model_sizes

pytestmark = [
    pytest.mark.skipif(bool(emulator_reason()), reason=emulator_reason() or "kernels can be emulated"),
    pytest.mark.timeout(280),
]


@pytest.fixture(scope="module")
def tiny() -> Iterator[LLM]:
    settings = {"dtype": "bfloat16", "attention_backend": "emulated", "num_blocks": 48, "max_num_batched_tokens": 48}
    with LLM("tiny", **settings) as llm:
        params = SamplingParams(max_tokens=3, temperature=0.8, seed=1, repetition_penalty=1.2)
        assert llm.generate(["Once upon a time", "Once upon a hill"], params, use_tqdm=False)[0].error is None
        yield llm


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "radix_match"])
def test_cases_run_all_that_the_engine_runs(tiny: LLM, name: str) -> None:
    sizes = model_sizes(tiny)
    assert sizes is not None
    cases = cases_of(name, [ModelSizes(**asdict(sizes))])
    ran = {each for case in cases for each in Trial(case, torch.device("cpu")).launches(EmulatorLauncher())}
    needed = {each for each in launched(tiny) if each.kernel.name == name}
    assert needed <= ran, [each.label for each in needed - ran]
    assert needed or name in ("copy_blocks", "reshape_and_cache", "rotary_embedding")
