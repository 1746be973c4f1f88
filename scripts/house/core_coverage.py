"""Branch coverage of the engine core: collected by several pytest runs, reported and gated once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "coverage"
REQUIRED_PERCENT = 90
CORE = (
    "block_pool",
    "radix_tree",
    "scheduler",
    "sequence",
    "engine",
    "look_ahead",
    "plan",
    "recorder",
    "invariants",
    "sampler",
    "sampling",
    "detokenizer",
    "stop",
)


def start_coverage() -> None:
    """Forget earlier runs, and make this run's processes write into our folder."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["COVERAGE_FILE"] = str(FOLDER / "data")


def coverage_options() -> list[str]:
    """Options that make a pytest run add to the data."""
    return ["--cov=yaie_engine", "--cov-branch", "--cov-append", "--cov-report="]


def core_files() -> list[str]:
    """Patterns of the core's files: modules and packages of the names above that exist."""
    engine = ROOT / "engine" / "yaie_engine"
    modules = [str(path) for name in CORE if (path := engine / f"{name}.py").is_file()]
    packages = [f"{path}/*" for name in CORE if (path := engine / name).is_dir()]
    return modules + packages


def coverage_report(*, gate: bool) -> bool:
    """Print the table; False when the core is below the required share and `gate` is set."""
    if not list(FOLDER.glob("data*")):
        print("core coverage: nothing was measured")
        return not gate
    command = [sys.executable, "-m", "coverage", "report", f"--include={','.join(core_files())}"]
    print(f"\nbranch coverage of the engine core (required: {REQUIRED_PERCENT} %)", flush=True)
    if gate:
        command.append(f"--fail-under={REQUIRED_PERCENT}")
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0
