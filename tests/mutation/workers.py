"""Runs tests over a mutant in a process that is forked for it, with everything but our modules loaded already."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import hypothesis.stateful  # noqa: F401
import pytest

from tests.mutation.mutant import Mutant
from tests.mutation.targets import DESELECTED
from tests.property.mutants import Finder

ROOT = Path(__file__).parents[2]
Verdict = Literal["killed", "timed out", "survived"]
MOST_BYTES = 2 * 2**30
LONGEST_TEST = 4.0
"""Seconds of processor time for one test: far more than any takes but the state machine."""
SLOWER = 4
"""So many times as long as without a mistake the state machine may take."""
_QUIET = ["-q", "-x", "--tb=no", "--noconftest", "--assert=plain", "--import-mode=importlib", "-p", "no:cacheprovider"]
_QUIET += [
    "-p",
    "no:faulthandler",
    "-p",
    "no:unraisableexception",
    "-p",
    "no:threadexception",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=ignore",
    "-W",
    "ignore",
]
_CAUGHT = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)  # interrupted: a test file cannot be imported
_BROKEN = 99


class _Limit:
    """A pytest plug-in that ends the process when one test takes too long; it counts processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        long = "scheduler_machine" in item.nodeid
        signal.setitimer(signal.ITIMER_VIRTUAL, self.seconds if long else LONGEST_TEST)
        yield
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@dataclass(slots=True)
class _Job:
    mutant: Mutant
    pid: int
    ends: float


def unchanged(files: tuple[str, ...], examples: int) -> float | None:
    """Seconds of processor time that the tests take without a mistake; None where they fail."""
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pid = _fork(None, files, examples, 3600.0)
    status = os.waitpid(pid, 0)[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return min(spent, time.perf_counter() - start) if status == 0 else None


def verdicts(
    mutants: list[Mutant], tests: dict[str, tuple[str, ...]], usual: dict[str, float], examples: int, jobs: int
) -> Iterator[tuple[Mutant, Verdict]]:
    """Each mutant with what became of it, as they come, `jobs` side by side.

    `usual`: by module, the seconds that its tests take without a mistake.
    """
    waiting, running = mutants[::-1], list[_Job]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                limit = max(LONGEST_TEST, SLOWER * usual[mutant.module])
                pid = _fork(mutant, tests[mutant.module], examples, limit)
                running.append(_Job(mutant, pid, time.monotonic() + 10 * (limit + LONGEST_TEST)))
            for job in running[:]:
                pid, status = os.waitpid(job.pid, os.WNOHANG)
                if pid:
                    running.remove(job)
                    yield job.mutant, _verdict(status)
                elif time.monotonic() > job.ends:
                    os.kill(job.pid, signal.SIGKILL)
            time.sleep(0.005)
    finally:
        for job in running:
            os.kill(job.pid, signal.SIGKILL)
            os.waitpid(job.pid, 0)


def _verdict(status: int) -> Verdict:
    if os.WIFSIGNALED(status):
        return "timed out"
    code = os.WEXITSTATUS(status)
    if code != 0 and code not in _CAUGHT:
        raise RuntimeError(f"pytest ended with code {code}: its tests did not run")
    return "killed" if code else "survived"


def _fork(mutant: Mutant | None, files: tuple[str, ...], examples: int, limit: float) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = _BROKEN
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _silence()
        code = _run(mutant, files, examples, limit)
    finally:
        os._exit(code)


def _run(mutant: Mutant | None, files: tuple[str, ...], examples: int, limit: float) -> int:
    os.chdir(ROOT)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    os.environ.update(YAIE_MUTANT="", YAIE_SHRINK="0", YAIE_EXAMPLES=str(examples), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "yaie_engine")]:
        del sys.modules[name]  # other tests of this process have loaded them, without the mistake
    if mutant is not None:
        compile(mutant.source, mutant.module, "exec")  # else what is no Python would count as killed
        sys.meta_path.insert(0, Finder(f"yaie_engine.{mutant.module}", mutant.source))
    left_out = [word for each in DESELECTED for word in ("--deselect", f"tests/{each}")]
    for file in files:
        code = int(pytest.main([*_QUIET, *left_out, f"tests/{file}.py"], plugins=[_Limit(limit)]))
        if code:
            return code
    return 0


def _silence() -> None:
    """Nothing that the tests print is of interest."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
