"""Every planted mistake must be caught by the tests of rules or policies, or by the state machine.

Each runs in a process of its own, forked from one that has read pytest and hypothesis already: reading them takes
longer than most of the tests. What loops for ever is known by its processor time, which a busy machine leaves alone.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.property.mutant_run import run_tests
from tests.property.mutants import MUTANTS, Mutant

PATIENCE = 240  # seconds for a run that takes one on a quiet machine
EXAMPLES = 600
FEW, ENDLESS = 60, 8  # examples that take two seconds, and seconds of work after which they will never end
POLICIES = ("policy_reads", "policy_priority", "policy_lpm", "policy_followers", "policy_fcfs", "policy_fair")
FILES = {
    "rules": ("rules", "host_rules", "recovery", "tree_eviction", "scheduler_machine"),
    "policy": (*POLICIES, "scheduler_machine"),
}


def files(mutant: Mutant) -> list[str]:
    """Its files of tests: first those about what it breaks, then the cheapest."""
    about = f"{mutant.name} {mutant.module}"
    names = sorted(FILES[mutant.tests], key=lambda name: name.removeprefix("policy_") not in about)
    return [f"tests/property/test_{name}.py" for name in names]


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "hypothesis.stateful"])
    return context


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, processes: ForkServerContext, tmp_path: Path) -> None:
    mutant.source()
    output = tmp_path / "output"
    bounds = (FEW, ENDLESS) if mutant.endless else (EXAMPLES, 0)
    run = processes.Process(target=run_tests, args=(mutant.name, files(mutant), *bounds, output))
    run.start()
    run.join(PATIENCE)
    if run.exitcode is None:
        run.kill()
        run.join()
        pytest.fail(f"{mutant.name} was not caught within {PATIENCE} s")
    if mutant.endless and run.exitcode == -signal.SIGXCPU:
        return
    report = output.read_text()
    assert run.exitcode == 1 and " failed" in report, f"{mutant.name} survived or did not run:\n{report[-4000:]}"
