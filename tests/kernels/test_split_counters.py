"""Split counters are zero at the start of every launch, whatever the one before left there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.attention_runs import case, check, decode, prefill
from tests.kernels.dense import Problem
from yaie_cuda import sources
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.errors import EmulatorError

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)
LAST = "if (!last_of(p.counters + "
COUNTS = "{ __syncthreads(); if (threadIdx.x == 0) atomicAdd(p.counters, 1); __syncthreads(); }\n    "
RUNS = {"paged_attention_decode": decode, "paged_attention_prefill": prefill}


@pytest.fixture(autouse=True)
def _built_in_sources() -> Iterator[None]:
    yield
    sources.restore()


def problem(seed: int) -> Problem:
    return Problem(case(((1, 1700), (1, 3), (1, 830))), seed=seed)


def counters(launcher: EmulatorLauncher) -> Tensor:
    """Those of the first sequence."""
    return launcher.workspace("attention_counters", (1,), torch.int32, torch.device("cpu"))


def spoil(kernel: str, line: str) -> None:
    """Put `line` behind the count of finished parts of a kernel."""
    text = sources.built_in(kernel)
    place = text.index("\n", text.index(LAST)) + 1
    sources.replace(kernel, f"{text[:place]}    {line}{text[place:]}")


@pytest.mark.parametrize("kernel", RUNS)
def test_a_replaced_kernel_that_left_them_does_no_harm_to_the_next(kernel: str) -> None:
    run, launcher = RUNS[kernel], EmulatorLauncher()
    check(problem(0), run(launcher, problem(0)))
    spoil(kernel, COUNTS)
    run(launcher, problem(0))
    assert counters(launcher)[0] != 0
    sources.restore()
    for seed in (1, 2):
        check(problem(seed), run(launcher, problem(seed)))


@pytest.mark.parametrize("kernel", RUNS)
def test_a_launch_that_died_does_no_harm_to_the_next(kernel: str) -> None:
    """The source stays the same: only that the launch raised can tell."""
    run, launcher = RUNS[kernel], EmulatorLauncher()
    check(problem(0), run(launcher, problem(0)))
    launch, died = launcher.launch, _dirty_and_die(launcher)
    launcher.launch = died  # type: ignore[method-assign]
    with pytest.raises(EmulatorError):
        run(launcher, problem(0))
    launcher.launch = launch  # type: ignore[method-assign]
    for seed in (1, 2):
        check(problem(seed), run(launcher, problem(seed)))


def _dirty_and_die(launcher: EmulatorLauncher) -> Callable[..., None]:
    def launch(*_: object) -> None:
        counters(launcher).fill_(1)
        raise EmulatorError("it died with a part counted")

    return launch
