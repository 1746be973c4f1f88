"""Every planted mistake must be caught by the rule tests or the state machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
FILES = ["tests/property/test_rules.py", "tests/property/test_scheduler_machine.py"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    mutant.source()
    environment = {**os.environ, "YAIE_MUTANT": mutant.name, "YAIE_EXAMPLES": "1500", "YAIE_SHRINK": "0"}
    environment.pop("PYTEST_ADDOPTS", None)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.property.mutants", "--timeout=60", "-n0"]
    command = [sys.executable, "-m", "pytest", *options, *FILES]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, f"{mutant.name} survived or did not run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
