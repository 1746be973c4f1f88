"""The cases of the kernel lab: every kernel has some, they launch it, and the built-in kernels pass them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yaie_cuda.catalog import all_kernels, all_specialisations
from yaie_cuda.emulator.build import emulator_reason
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.lab.cases import BUILDERS, USUAL, cases_of
from yaie_cuda.lab.trial import Trial

CPU = torch.device("cpu")


def test_every_kernel_has_cases() -> None:
    assert set(BUILDERS) == set(all_kernels())
    with pytest.raises(LookupError):
        cases_of("no_such_kernel")


@pytest.mark.parametrize("name", BUILDERS)
def test_cases_launch_their_kernel_and_are_told_apart(name: str) -> None:
    cases = cases_of(name)
    launched = [Trial(case, CPU).launches(EmulatorLauncher()) for case in cases]
    ours = {each for found in launched for each in found if each.kernel.name == name}
    assert ours, f"no case launches {name}"
    assert len({case.title for case in cases}) == len(cases)
    assert ours <= set(all_specialisations()) or name in ("rms_norm", "silu_and_mul", "top_k_top_p_sample")


def test_sizes_of_an_engine_are_checked_too_unless_they_are_the_usual_ones() -> None:
    usual = [case.title for case in cases_of("silu_and_mul")]
    assert [case.title for case in cases_of("silu_and_mul", [USUAL])] == [*usual, "1 x 512 float32"]
    more = [case.title for case in cases_of("silu_and_mul", [replace(USUAL, intermediate=96)])]
    assert more[: len(usual)] == usual and "5 x 96 bfloat16, as in the engine" in more


def test_equal_calls_invent_equal_arguments() -> None:
    case = cases_of("paged_attention_decode")[1]
    first, second = (Trial(case, CPU) for _ in range(2))
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first.tensors, second.tensors, strict=True))


@pytest.mark.skipif(bool(emulator_reason()), reason=emulator_reason() or "kernels can be emulated")
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("copy_blocks", "radix_match") else pytest.param(name, marks=pytest.mark.full)
        for name in BUILDERS
    ],
)
def test_the_built_in_kernels_pass(name: str) -> None:
    for case in cases_of(name):
        trial, launcher = Trial(case, CPU), EmulatorLauncher()
        trial.run(launcher)
        differences, stray = trial.outcome()
        assert not stray, f"{case.title}: {stray}"
        assert all(each.ok for each in differences), f"{case.title}: {[each.words for each in differences]}"
