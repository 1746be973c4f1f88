"""The lowest transformers that CI runs is the lowest that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.house.test_scripts import ROOT, load

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def bounds(name: str) -> tuple[str, str]:
    """Lowest and first excluded version of a requirement."""
    (line,) = [line for line in PROJECT["dependencies"] if re.match(rf"{name}\b", line)]
    found = re.fullmatch(rf"{name}>=([\d.]+),<([\d.]+)", line)
    assert found is not None, line
    return found[1], found[2]


def test_the_lowest_transformers_is_the_one_that_ci_runs() -> None:
    lowest = load("lowest").LOWEST
    assert bounds("transformers")[0] == lowest["transformers"].removesuffix(".0")
    least, most = (int(bound.split(".")[0]) for bound in bounds("huggingface-hub"))
    assert least <= int(lowest["huggingface_hub"].split(".")[0]) < most


def test_ci_runs_the_engine_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "house")
    steps = load("shares").shares(2)["architectures"]
    (run,) = [step for step in steps if "PYTHONPATH" in step.environment]
    assert Path(run.environment["PYTHONPATH"]) == load("lowest").FOLDER
    chosen = {word for word in run.command if word.startswith("tests/")}
    there = {f"tests/engine/{path.name}": path.read_text() for path in (ROOT / "tests" / "engine").glob("test_*.py")}
    assert chosen <= set(there)
    assert {name for name, text in there.items() if re.search(r"^\s*(from|import) transformers", text, re.M)} <= chosen
