"""One run of pytest with one planted mistake, in a process that was forked for it.

This module must not read `tests.property.mutants`: pytest does, as a plug-in, once the mistake is named.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_tests(name: str, files: list[str], examples: int, most_seconds: int, output: Path) -> None:
    """Run `files` with the mistake `name` in place, what they print into `output`; ends with pytest's exit code.

    After `most_seconds` of processor time (0: no bound) the system ends the process by SIGXCPU.
    """
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(ROOT)
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.environ.update(YAIE_MUTANT=name, YAIE_EXAMPLES=str(examples), YAIE_SHRINK="0", **plugins)
    if most_seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, most_seconds + 5))
    settings = ["-o", "addopts=", "-o", "filterwarnings=ignore", "--import-mode=importlib"]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.property.mutants", *settings]
    sys.exit(pytest.main([*options, *files]))
