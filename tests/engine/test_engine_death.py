"""The end of an engine, by failure or by close: everybody who waits hears of it."""

from __future__ import annotations

import re
import threading

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, eventually, greedy, swap_runner
from tests.engine.faults import Fault, at_point, planted
from tests.engine.models import VOCAB
from tests.engine.test_faults import PLAIN, A, B, C
from tests.engine.test_overlap import run_all, submitted
from yaie_cuda.errors import EmulatorError, KernelLaunchError
from yaie_engine import EngineDeadError
from yaie_engine.device_errors import lost
from yaie_engine.fault_points import OF_STEP
from yaie_engine.plan import StepPlan

pytestmark = pytest.mark.usefixtures("overlap")
DEADLY = [(kind, site) for kind in (SystemExit, GeneratorExit) for site in ("plan", "forward", "deliver", "result")]


@pytest.mark.parametrize(("kind", "site"), DEADLY)
def test_when_the_engine_itself_dies_everybody_hears(make_llm: Make, site: str, kind: type[BaseException]) -> None:
    llm = make_llm(max_num_seqs=2)
    swap_runner(llm, Formula(VOCAB).runner)
    with at_point(site, Fault(kind, at=1 if site == "result" else 2)):
        handles = submitted(llm, [(prompt, PLAIN) for prompt in (A, B, C, A)])
        outputs = [handle.result(LONG) for handle in handles]
    eventually(lambda: llm.state == "failed")
    dead = [output for output in outputs if output.error]
    assert dead and all(isinstance(output.error, EngineDeadError) for output in dead)
    assert all("planted" in str(output.error) for output in dead)
    assert all(isinstance("".join(map(str, handle)), str) for handle in handles), "no iteration hangs"
    with pytest.raises(EngineDeadError, match=r"failed.*planted"):
        llm.submit(A, PLAIN)
    with pytest.raises(EngineDeadError):
        llm.check()
    assert llm.snapshot().state == "failed" and llm.snapshot().blocks.total == 0
    llm.close()


LOST: list[Exception] = [
    RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ..."),
    RuntimeError("CUDA error: device-side assert triggered"),
    KernelLaunchError("rms_norm[WIDTH=4]: cuLaunchKernel failed: CUDA_ERROR_LAUNCH_FAILED: words"),
    KernelLaunchError("rms_norm: cuModuleLoadData failed: CUDA_ERROR_ILLEGAL_ADDRESS: words"),
    *([torch.AcceleratorError("CUDA error: misaligned address")] if hasattr(torch, "AcceleratorError") else []),
]
SURVIVED: list[Exception] = [
    RuntimeError("CUDA error: invalid argument"),
    KernelLaunchError("rms_norm: cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE: words"),
    EmulatorError("rms_norm: thread 3 reads a misaligned address"),
]


def at_second(error: Exception) -> Fault:
    def kind(_: str) -> Exception:
        return error

    return Fault(kind, at=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("site", [*OF_STEP, "score"])
@pytest.mark.parametrize("error", LOST, ids=lambda error: str(error)[:40])
def test_a_lost_gpu_ends_the_engine_and_says_to_restart(make_llm: Make, site: str, error: Exception) -> None:
    llm = make_llm(max_num_seqs=2)
    swap_runner(llm, Formula(VOCAB).runner)
    with at_point(site, at_second(error)):
        params = greedy(8, prompt_logprobs=1)
        outputs = run_all(llm, [(prompt, params) for prompt in (A, B, C)])
    eventually(lambda: llm.state == "failed")
    dead = [output.error for output in outputs if output.error]
    assert dead and all(isinstance(one, EngineDeadError) for one in dead)
    said = r"the GPU was lost \(.*nothing in this process can use it any more; restart the kernel, or the process"
    assert all(re.match(said, str(one)) for one in dead)
    with pytest.raises(EngineDeadError, match=said):
        llm.submit(A, PLAIN)


@pytest.mark.parametrize("error", SURVIVED, ids=lambda error: str(error)[:40])
def test_an_error_that_the_gpu_survives_fails_its_requests_only(make_llm: Make, error: Exception) -> None:
    llm = make_llm(max_num_seqs=2)
    swap_runner(llm, Formula(VOCAB).runner)
    with at_point("forward", at_second(error)):
        output = llm.submit(A, PLAIN).result(LONG)
    assert output.error is not None and not isinstance(output.error, EngineDeadError)
    assert llm.state == "ready" and llm.submit(A, PLAIN).result(LONG).error is None


@pytest.mark.skipif(not hasattr(torch, "AcceleratorError"), reason="this PyTorch has no such error")
@pytest.mark.parametrize("repeats", [True, False])
def test_an_unknown_error_of_the_gpu_is_deadly_if_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    def synchronize() -> None:
        if repeats:
            raise RuntimeError("CUDA error: something new")

    error = torch.AcceleratorError("CUDA error: something new")
    assert lost(error) is None  # CUDA was never used
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert (lost(error) is not None) == repeats
    assert lost(torch.OutOfMemoryError("CUDA out of memory.")) is None


def test_a_schedule_that_never_gives_work_is_a_failure_not_a_hang(make_llm: Make) -> None:
    llm = make_llm()
    llm._scheduler.schedule = lambda: StepPlan(0)  # type: ignore[method-assign]
    output = llm.submit(A, PLAIN).result(LONG)
    assert isinstance(output.error, EngineDeadError) and "scheduled nothing" in str(output.error)


def test_a_schedule_that_always_fails_ends_every_request(make_llm: Make) -> None:
    llm = make_llm()

    def broken() -> StepPlan:
        raise ValueError("planted")

    llm._scheduler.schedule = broken  # type: ignore[method-assign]
    handles = [llm.submit([i, 2], PLAIN) for i in range(5)]
    assert all("planted" in str(handle.result(LONG).error) for handle in handles)
    assert llm.state == "ready"
    llm.check()


def test_requests_that_come_in_behind_the_end_are_answered(make_llm: Make) -> None:
    """They passed the gate before the engine closed, and are found in its inbox afterwards."""
    llm = make_llm()
    block = threading.Event()
    llm._engine._inbox.put(block.wait)
    llm._engine._inbox.put(llm._engine._stop)
    handle = llm.submit(A, PLAIN)
    block.set()
    output = handle.result(LONG)
    assert isinstance(output.error, EngineDeadError) and output.outputs[0].finish_reason == "error"
    llm.close()
    assert llm.state == "closed"


def test_a_runner_that_cannot_close_does_not_block_close(make_llm: Make) -> None:
    llm = make_llm()
    with planted(llm._engine.runner, "close", Fault(RuntimeError)):
        llm.close()
    assert llm.state == "closed"
