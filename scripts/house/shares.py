"""The test run, in shares: what CI runs, with the seconds of each share and one verdict at the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core_coverage import coverage_options, coverage_report, start_coverage

ROOT = Path(__file__).resolve().parents[2]
NO_TESTS_COLLECTED = 5
SPECIAL_FOLDERS = (
    "engine",
    "unit",
    "packaging",
    "architectures",
    "kernels",
    "benchmarks",
    "notebook",
    "live",
    "server",
    "remote",
    "browser",
    "property",
    "fault",
    "mutation",
    "soak",
)
ON_LOWEST = (
    *("anomaly", "api_generate", "backends", "cascade_backend", "cascade_gate", "cases_cache", "cases_limits"),
    *("cases_sampling", "cases_schedule", "cases_text", "cpu_backend", "front", "fused", "fused_check", "graphs"),
    *("int8", "parts", "residual", "sharing", "sleep_faults", "trace"),
)
"""The files of tests/engine in which transformers has a part: loading, tokenizers, attention, the fused parts."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a share. Extra pytest arguments reach the steps that are pytest runs."""

    command: tuple[str, ...]
    is_pytest: bool = True
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """How one share ended."""

    name: str
    seconds: float
    verdict: str


def pytest_step(
    *arguments: str,
    workers: int = 0,
    dist: str = "loadgroup",
    measured: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Step:
    """A pytest run, on several processes if asked, counted in the coverage of the engine core if asked."""
    environment = dict(environment or {})
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    if workers > 1:
        command += ["-n", str(workers), "--dist", dist]
        environment.setdefault("OMP_NUM_THREADS", "1")
    if measured:
        command += coverage_options()
    return Step(tuple(command), environment=environment)


def folders(*names: str) -> list[str]:
    """Those test folders that exist."""
    return [f"tests/{name}" for name in names if (ROOT / "tests" / name).is_dir()]


def notebook_steps(workers: int) -> list[Step]:
    """Every example, its outputs compared cell by cell: nbval runs a notebook in order in one fresh kernel and fails on
    an error in any cell, so a second runner would see nothing more. Then the tests that start kernels. What shares a
    kernel stays in one process."""
    if not list((ROOT / "examples").glob("*.ipynb")):
        return []

    def files(*arguments: str, **environment: str) -> Step:
        return pytest_step(*arguments, environment=environment, workers=workers, dist="loadfile")

    plain = {"YAIE_NOTEBOOK": "static", "HF_HUB_OFFLINE": "1"}
    nbval = ["-p", "nbval", "--nbval", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg", "--nbval-current-env"]
    return [
        files(*nbval, "--nbval-cell-timeout=120", "-p", "no:cacheprovider", "examples", **plain),
        files("tests/notebook"),
    ]


def lowest_steps(workers: int) -> list[Step]:
    """Those tests of the engine once more that call transformers, on the lowest that pyproject.toml allows."""
    install = Step((sys.executable, "scripts/house/lowest.py"), is_pytest=False)
    files = [f"tests/engine/test_{name}.py" for name in ON_LOWEST]
    environment = {"PYTHONPATH": str(ROOT / "build" / "lowest")}
    return [install, pytest_step(*files, "-p", "no:cacheprovider", workers=workers, environment=environment)]


def shares(workers: int) -> dict[str, list[Step]]:
    """The shares in the order they run; a share without steps has nothing to run in this checkout."""

    def tests(*names: str, workers: int = 0, dist: str = "loadgroup", measured: bool = False) -> list[Step]:
        found = folders(*names)
        return [pytest_step(*found, workers=workers, dist=dist, measured=measured)] if found else []

    ignored = [f"--ignore=tests/{name}" for name in SPECIAL_FOLDERS]
    lint = Step((sys.executable, "scripts/house/lint.py"), is_pytest=False)
    return {
        "install": tests("packaging"),
        "lint": [lint],
        # What is measured takes half as long again, so only the tests that the coverage of the core is asked of.
        "engine": tests("engine", "unit", workers=workers, measured=True),
        "unit": [pytest_step("tests", *ignored, workers=workers)],
        "architectures": [*tests("architectures", workers=workers), *lowest_steps(workers)],
        "kernels": tests("kernels", "benchmarks", workers=workers),
        "notebooks": notebook_steps(workers),
        # A browser driver keeps an event loop on its thread: tests that start loops run in another process.
        "views": tests("live", workers=workers),
        "browser": tests("browser", workers=workers, dist="loadfile"),
        "server": tests("server", "remote", workers=workers),
        "reliability": tests("property", "fault", "mutation", "soak", workers=workers),
    }


def run_step(step: Step, extra: Sequence[str]) -> bool:
    """Run one command with its output on ours. Collecting nothing is no failure: `-k` may leave a share empty."""
    command = [*step.command, *extra] if step.is_pytest else list(step.command)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **step.environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # every worker, kernel and command would compile all of ours again
    code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    return code == 0 or (step.is_pytest and code == NO_TESTS_COLLECTED)


def run_share(name: str, steps: Sequence[Step], extra: Sequence[str]) -> Result:
    """Run the steps of one share; a failed step does not hide the next one."""
    print(f"\n=== {name} ===", flush=True)
    start = time.perf_counter()
    passed = [run_step(step, extra) for step in steps]
    verdict = "nothing to run" if not steps else "ok" if all(passed) else "FAILED"
    return Result(name, time.perf_counter() - start, verdict)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options; what is unknown to us goes to pytest."""
    names = list(shares(1))
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        description="Runs what CI runs. Other options go to pytest; a path under tests/ runs only that.",
    )
    parser.add_argument("--full", action="store_true", help="the full grids too (marker `full`)")
    parser.add_argument("--only", action="append", choices=names, metavar="SHARE", help=f"one of {', '.join(names)}")
    parser.add_argument("--workers", type=int, default=2, help="processes where tests may run side by side (2)")
    return parser.parse_known_args(list(arguments))


def print_table(results: Sequence[Result]) -> None:
    """Seconds and verdict of every share."""
    print("\nshare             seconds  verdict")
    for result in results:
        print(f"{result.name:<16}{result.seconds:>9.1f}  {result.verdict}")
    print(f"{'total':<16}{sum(result.seconds for result in results):>9.1f}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the shares asked for; 1 when any failed."""
    options, extra = parse(arguments)
    if any(not word.startswith("-") and (ROOT / word.split("::")[0]).exists() for word in extra):
        return 0 if run_step(pytest_step(), extra) else 1
    if not options.full:
        extra = ["-m", "not full", *extra]
    start_coverage()
    chosen = {name: steps for name, steps in shares(options.workers).items() if name in (options.only or [name])}
    results = [run_share(name, steps, extra) for name, steps in chosen.items()]
    if "engine" in chosen:
        gate = len(extra) <= 2
        start = time.perf_counter()
        covered = coverage_report(gate=gate)
        results.append(Result("core coverage", time.perf_counter() - start, "ok" if covered else "FAILED"))
    print_table(results)
    return 1 if any(result.verdict == "FAILED" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
