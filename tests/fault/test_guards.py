"""The guards that watch over all tests do see what they are there for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, ask, eventually, greedy, tokens
from tests.engine.models import Reference
from tests.owner_thread import OWNERS
from tests.poison import Poison, tensors_of
from yaie_engine import LLM, InvariantError
from yaie_engine.fault_points import armed
from yaie_engine.plan import StepPlan
from yaie_engine.runner import ModelRunner

A = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("change", ["tree", "scheduler", "pool"])
def test_a_thread_that_changes_the_books_of_another_is_told_of(llm: LLM, change: str) -> None:
    ask(llm, A, greedy(2))
    scheduler = llm._scheduler
    with pytest.raises(AssertionError, match="on MainThread: not its owner"):
        if change == "tree":
            scheduler.tree.match(A)
        elif change == "pool":
            scheduler.pool.free(0)
        else:
            scheduler.schedule()
    assert len(OWNERS.problems) == 1
    OWNERS.problems.clear()


def test_an_answer_that_reads_a_freed_block_shows_it(llm: LLM, reference: Reference) -> None:
    """Its logits are NaN, so that it fails; without the poison it would be a little wrong, or right by chance."""

    def lose(plan: StepPlan) -> None:
        seq = plan.batch[0].seq
        if seq.num_output_tokens == 3:
            pool = llm._scheduler.pool
            lost = seq.block_table[0]
            owner, writer = pool.owner[lost], pool.writer[lost]
            pool.free(lost)
            pool._free.remove(lost)
            pool.owner[lost], pool.writer[lost] = owner, writer

    with armed("start", lose):
        output = llm.submit(A, greedy(8)).result(LONG)
    assert output.error is not None and "NaN" in str(output.error)
    assert tokens(ask(llm, A, greedy(8))) == reference.greedy(A, 8)


def test_free_blocks_hold_nothing_at_any_time(make_llm: Make, poisoned: Poison) -> None:
    """Device and host blocks, after evictions, preemption and a start over."""
    llm = make_llm(num_blocks=12, num_cpu_blocks=6, preemption="swap", max_num_seqs=3)

    def free_ones_are_poisoned() -> None:
        runner, scheduler = llm._engine.runner, llm._scheduler
        assert isinstance(runner, ModelRunner)
        for pool, tensors in ((scheduler.pool, tensors_of(runner.cache)), (scheduler.host.pool, runner.host._tensors)):
            assert tensors
            for block in pool.free_blocks:
                assert all(bool(tensor[block].isnan().all()) for tensor in tensors), block

    before = poisoned.count
    for round_ in range(4):
        for handle in [llm.submit([round_ + 40, *A[:i]], greedy(10, ignore_eos=True)) for i in range(4, 9)]:
            assert handle.result(LONG).error is None
        llm._engine.call(free_ones_are_poisoned)
    assert poisoned.count > before + 20
    llm._engine.call(llm._scheduler.rebuild)
    llm._engine.call(free_ones_are_poisoned)


def test_reports_of_broken_books_are_not_left_behind(make_llm: Make) -> None:
    before = set(Path(tempfile.gettempdir()).glob("yaie-breach-*"))
    llm = make_llm()
    llm._engine.call(lambda: setattr(llm._scheduler.pool, "_held", 3))
    with pytest.raises(InvariantError) as error:
        llm.check()
    path = Path(str(error.value).rpartition("report: ")[2])
    assert json.loads(path.read_text())["format"] == "yaie-breach-1"
    assert set(Path(tempfile.gettempdir()).glob("yaie-breach-*")) == before
    eventually(lambda: llm.state == "failed")


def test_processes_that_tests_start_leave_their_reports_with_the_run() -> None:
    program = "import tempfile; print(tempfile.mkstemp(prefix='yaie-breach-')[1])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(said).parent == Path(os.environ["TMPDIR"]) != Path(tempfile.gettempdir())


def test_a_test_that_hangs_shows_where(pytestconfig: pytest.Config) -> None:
    """After a minute the stacks of all threads are printed, after five the run ends."""
    assert float(pytestconfig.getini("faulthandler_timeout")) == 60
    assert pytestconfig.pluginmanager.has_plugin("faulthandler")
    assert float(pytestconfig.getini("timeout")) == 300
