"""The kernels that an engine runs can each be checked for it: cases cover every specialisation that `tiny` loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest
import torch

from yaie_cuda import sources
from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.lab.cases import BUILDERS, cases_of
from yaie_cuda.lab.request import ModelSizes
from yaie_cuda.lab.trial import Trial
from yaie_engine import LLM, SamplingParams
from yaie_engine.kernel_exchange import _backend, exchange, launched, model_sizes

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


def test_a_kernel_that_never_ends_on_an_engines_own_data_does_not_hold_it_for_ever(tiny: LLM) -> None:
    """Its cases have at most five rows; with more it goes on for ever. Requests fail, and the engine serves again."""
    launcher = _backend(tiny).kernels.launcher  # type: ignore[union-attr]
    before = launcher.options
    launcher.options = replace(before, limit_s=0.5)
    entry = "silu_and_mul(const __grid_constant__ Params p) {"
    text = sources.built_in("silu_and_mul")
    endless = f"{entry}\n    volatile int rows = gridDim.x;\n    while (rows > 5) rows = rows;\n"
    assert entry in text
    greedy = SamplingParams(max_tokens=2, temperature=0)
    try:
        exchange(lambda: sources.replace("silu_and_mul", text.replace(entry, endless)))
        failed = tiny.generate(["A prompt of more than five tokens, so that it never ends"], greedy, use_tqdm=False)
        assert "silu_and_mul" in str(failed[0].error) and "did not end within 0.5 s" in str(failed[0].error)
        assert tiny.generate(["Hi"], greedy, use_tqdm=False)[0].error is None
    finally:
        exchange(sources.restore)
        launcher.options = before
    assert tiny.generate(["A prompt of more than five tokens"], greedy, use_tqdm=False)[0].error is None
