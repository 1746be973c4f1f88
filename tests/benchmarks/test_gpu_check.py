"""The whole check on its CPU path: every part as a process, emulated kernels, tiny shapes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.parts import PARTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    if shutil.which("g++") is None:
        pytest.skip("kernels are emulated by what g++ builds, and it is not installed")
    out = tmp_path_factory.mktemp("gpu_check")
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check"), "--cpu", "--out", str(out)]
    return subprocess.run(command, cwd=out, capture_output=True, text=True, check=False), out


@pytest.fixture(scope="module")
def report(run: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run[1] / "gpu_check.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_part_runs_and_is_right(
    run: tuple[subprocess.CompletedProcess[str], Path], report: dict[str, Any]
) -> None:
    done, out = run
    print(done.stdout)
    assert [(one["name"], one["outcome"]) for one in report["parts"]] == [(part.name, "ok") for part in PARTS]
    assert done.returncode == 0 and done.stderr == ""
    assert {path.name for path in out.iterdir()} == {"gpu_check.json", "gpu_check.txt", "gpu_check.log"}


def test_no_target_is_judged_on_a_cpu(report: dict[str, Any]) -> None:
    assert not report["on_gpu"] and all(one["reached"] is None for one in report["targets"])


def test_every_target_has_a_measurement(report: dict[str, Any]) -> None:
    """Whatever the CPU's figures are worth: each target is fed by some measurement, in code that runs here."""
    fed = {one["target"] for one in report["measurements"] if one["target"]}
    assert fed | {"cascade-never-slower"} == {one["key"] for one in report["targets"]} | {"cascade-never-slower"}
