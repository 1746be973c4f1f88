"""Every planted mistake must be caught by the tests of rules or policies, or by the state machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PATIENCE = 240  # seconds for a run that takes one on a quiet machine
ENDLESS = 30  # seconds after which a mistake that loops for ever counts as seen
POLICIES = ("policy_fcfs", "policy_lpm", "policy_priority", "policy_fair", "policy_followers")
FILES = {"rules": ("rules", "host_rules", "recovery", "scheduler_machine"), "policy": (*POLICIES, "scheduler_machine")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    mutant.source()
    environment = {**os.environ, "YAIE_MUTANT": mutant.name, "YAIE_EXAMPLES": "600", "YAIE_SHRINK": "0"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # starting the plug-ins takes longer than the tests
    settings = ["-o", "addopts=", "-o", "filterwarnings=ignore", "--import-mode=importlib"]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.property.mutants", *settings]
    files = [f"tests/property/test_{name}.py" for name in FILES[mutant.tests]]
    command = [sys.executable, "-m", "pytest", *options, *files]
    patience = ENDLESS if mutant.endless else PATIENCE
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:
        assert mutant.endless, f"{mutant.name} was not caught within {patience} s"
        return
    report = f"{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert run.returncode == 1 and " failed" in run.stdout, f"{mutant.name} survived or did not run:\n{report}"
