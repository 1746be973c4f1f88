"""The end of an engine, by failure or by close: everybody who waits hears of it."""

from __future__ import annotations

import threading

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, eventually, swap_runner
from tests.engine.faults import Fault, planted
from tests.engine.models import VOCAB
from tests.engine.test_faults import NOBODY, OWN, PLAIN, SHARED, A, B, C
from yaie_engine import EngineDeadError, InvariantError
from yaie_engine.plan import StepPlan

DEADLY = [
    (kind, site)
    for kind in (SystemExit, KeyboardInterrupt, GeneratorExit)
    for site in ("schedule", "forward", "deliver", "record request")
]
DEADLY += [(InvariantError, "schedule"), (InvariantError, "forward")]  # type: ignore[list-item]


@pytest.mark.parametrize(("kind", "site"), DEADLY)
def test_when_the_engine_itself_dies_everybody_hears(make_llm: Make, site: str, kind: type[BaseException]) -> None:
    llm = make_llm(max_num_seqs=2)
    swap_runner(llm, Formula(VOCAB).runner)
    owner, name = {**SHARED, **OWN, **NOBODY}[site](llm)
    error = kind("planted") if kind is not InvariantError else InvariantError(["planted"])
    fault = Fault(lambda _: error, at=1 if site == "record request" else 2)  # type: ignore[arg-type]
    with planted(owner, name, fault):
        handles = [llm.submit(prompt, PLAIN) for prompt in (A, B, C, A)]
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
