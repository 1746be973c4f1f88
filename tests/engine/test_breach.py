"""Broken books in production: found, reported once, nothing new is served, what runs ends right, the process lives."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB
from tests.engine.test_overlap import submitted
from yaie_engine import LLM, EngineDeadError, InvariantError
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence

pytestmark = pytest.mark.usefixtures("overlap")
A, B = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [20, 21, 22, 23, 24]


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def _lost_hold(scheduler: Scheduler) -> None:
    scheduler.pool._held -= 100


def _short_table(scheduler: Scheduler) -> None:
    scheduler.running[0].block_table.pop()


def _leak(scheduler: Scheduler) -> None:
    gone = Sequence(999, "gone", [1], 1, 1, state="finished")
    scheduler.pool.owner = [owner or gone for owner in scheduler.pool.owner]


def _ahead(scheduler: Scheduler) -> None:
    scheduler.running[0].computed += 3


def breaking(llm: LLM, damage: Callable[[Scheduler], None], at: int) -> None:
    """Do the damage at the end of step `at`."""
    complete = llm._scheduler.complete

    def broken(plan: object, sampled: object) -> None:
        complete(plan, sampled)  # type: ignore[arg-type]
        if llm._scheduler.step == at:
            damage(llm._scheduler)

    llm._scheduler.complete = broken  # type: ignore[method-assign]


@pytest.mark.parametrize("damage", [_lost_hold, _short_table, _leak, _ahead])
def test_a_breach_is_found_and_what_runs_ends_right(
    make_llm: Make, reports: Path, damage: Callable[[Scheduler], None]
) -> None:
    llm, formula = make_llm(max_num_seqs=2), Formula(VOCAB)
    swap_runner(llm, formula.runner)
    breaking(llm, damage, at=4)
    handles = submitted(llm, [(A, greedy(30)), (B, greedy(30)), (A, greedy(5))])
    for handle, prompt, count in zip(handles, (A, B, A), (30, 30, 5), strict=True):
        output = handle.result(LONG)
        assert output.error is None and tokens(output) == formula.greedy(prompt, count)
    eventually(lambda: llm.state == "failed")
    with pytest.raises(EngineDeadError, match=r"contradicts itself.*%yaie restart loads it again; report: ") as refused:
        llm.submit(A, greedy(3))
    assert llm.snapshot().counters.breaches == 1
    path = Path(re.search(r"report: (\S+)", str(refused.value))[1])  # type: ignore[index]
    assert [*reports.glob("yaie-breach-*.json")] == [path] and stat.S_IMODE(path.stat().st_mode) == 0o600
    report = json.loads(path.read_text())
    assert report["violations"] and len(report["pool"]["blocks"]) == report["pool"]["total"] and report["running"]
    assert "token_ids" not in path.read_text()


def test_new_work_is_refused_while_the_rest_drains(make_llm: Make) -> None:
    llm, formula = make_llm(), Formula(VOCAB)
    swap_runner(llm, formula.runner)
    breaking(llm, _lost_hold, at=3)
    formula.runner.before = lambda plan: refused(llm) if llm.state == "draining" else None
    errors: list[str] = []

    def refused(llm: LLM) -> None:
        with pytest.raises(EngineDeadError, match="takes no new requests") as error:
            llm.submit(B, greedy(3))
        errors.append(str(error.value))

    assert tokens(llm.submit(A, greedy(20)).result(LONG)) == formula.greedy(A, 20)
    assert errors and len(set(errors)) == 1
    llm.close()


def test_a_breach_that_a_check_finds(make_llm: Make) -> None:
    llm = make_llm()
    llm.check()
    llm._scheduler.pool.writer[3] = Sequence(999, "gone", [1], 1, 1)
    with pytest.raises(InvariantError, match=r"block 3 .*report: "):
        llm.check()
    eventually(lambda: llm.state == "failed")
    with pytest.raises(EngineDeadError, match="%yaie restart"):
        llm.submit(A, greedy(3))


def test_a_second_breach_ends_the_engine(make_llm: Make) -> None:
    """What runs cannot be finished: everybody hears of the first breach."""
    llm = make_llm()
    swap_runner(llm, Formula(VOCAB).runner)

    def broken() -> None:
        raise InvariantError(["planted"])

    llm._scheduler.schedule = broken  # type: ignore[method-assign, assignment]
    output = llm.submit(A, greedy(20)).result(LONG)
    assert isinstance(output.error, EngineDeadError) and "(planted)" in str(output.error)
    eventually(lambda: llm.state == "failed")
    assert llm.snapshot().counters.breaches == 1


def test_a_report_that_cannot_be_written_changes_nothing_else(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, formula = make_llm(), Formula(VOCAB)
    swap_runner(llm, formula.runner)
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    breaking(llm, _lost_hold, at=3)
    assert tokens(llm.submit(A, greedy(12)).result(LONG)) == formula.greedy(A, 12)
    eventually(lambda: llm.state == "failed")
    with pytest.raises(EngineDeadError, match=r"no report could be written \(FileNotFoundError"):
        llm.submit(A, greedy(3))
