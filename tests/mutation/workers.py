"""Runs tests over mutants: collected once, then run in a process that is forked for each mutant."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import hypothesis.stateful  # noqa: F401
import pytest

from tests.mutation.in_place import replacements
from tests.mutation.jobs import TOLD, Verdict, race, silence
from tests.mutation.mutant import Mutant
from tests.mutation.targets import DESELECTED
from tests.property.mutants import Finder

ROOT = Path(__file__).parents[2]
MOST_BYTES = 2 * 2**30
LONGEST_TEST = 2.0
"""Seconds of processor time for one test: far more than any takes but the state machine."""
EXAMPLES = 100
"""Of the state machine; the tests of every day try 600."""
SLOWER = 4
"""So many times as long as without a mistake a test may take."""
_QUIET = ["-q", "-x", "-s", "--tb=no", "--noconftest", "--assert=plain", "--import-mode=importlib"]
_QUIET += [word for each in ("cacheprovider", "faulthandler", "unraisableexception", "threadexception")
           for word in ("-p", f"no:{each}")]  # fmt: skip
_QUIET += ["-o", "addopts=", "-o", "filterwarnings=ignore", "-W", "ignore", "--rootdir", str(ROOT)]
_QUIET += ["-c", str(ROOT / "pyproject.toml")]
_QUIET += [word for each in DESELECTED for word in ("--deselect", f"tests/{each}")]


class TestsFailError(RuntimeError):
    """They fail without a mistake, or end as no test does; the text says more."""


class _Runner:
    """A pytest plug-in that runs the collected tests again and again: `usual` are their seconds of processor time."""

    def __init__(self, mutants: list[Mutant], known: dict[str, float], jobs: int, out: TextIO | None) -> None:
        self.mutants, self.usual, self.jobs, self.out = mutants, known, jobs, out
        self.first: dict[str, None] = {}
        """Tests that saw a mistake, the last one at the end: they are asked first."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.out is None:
            self._until_one_fails(session)
            return True
        gc.collect()
        gc.freeze()
        try:
            self._judge(session)
        except RuntimeError as error:
            self._say(failed=str(error))
        return True

    def _judge(self, session: pytest.Session) -> None:
        _, verdict, told = next(race([(None, partial(self._without, session))], 1))
        if verdict != "survived":
            raise TestsFailError(f"without a mistake the tests fail already: {told or verdict}")
        self.usual = json.loads(told)
        bodies = [i for i, mutant in enumerate(self.mutants) if replacements(mutant)]
        self._say(usual=self.usual, anew=sorted({*range(len(self.mutants))} - {*bodies}))
        starts = ((i, partial(self._mutated, session, self.mutants[i])) for i in bodies)
        for i, verdict, test in race(starts, self.jobs):
            if verdict == "killed":
                self.first.pop(test, None)
                self.first[test] = None
            self._say(mutant=i, verdict=verdict)

    def _say(self, **line: Any) -> None:
        assert self.out is not None
        print(json.dumps(line), file=self.out, flush=True)

    def _without(self, session: pytest.Session) -> int:
        failed = self._until_one_fails(session)
        TOLD.write_text(failed or json.dumps(self.usual))
        return int(failed is not None)

    def _mutated(self, session: pytest.Session, mutant: Mutant) -> int:
        for function, body in replacements(mutant):
            function.__code__ = body
        failed = self._until_one_fails(session)
        TOLD.write_text(failed or "")
        return int(failed is not None)

    def _until_one_fails(self, session: pytest.Session) -> str | None:
        """The name of the test that fails; quick ones are run first."""
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        limited, rank = bool(self.usual), {test: number for number, test in enumerate(self.first)}
        items = sorted(session.items, key=lambda item: (-rank.get(item.nodeid, -1), self.usual.get(item.nodeid, 0.0)))
        for item, following in zip(items, [*items[1:], None], strict=True):
            before = resource.getrusage(resource.RUSAGE_SELF)
            if limited:
                most = max(LONGEST_TEST, SLOWER * self.usual.get(item.nodeid, 0.0))
                signal.setitimer(signal.ITIMER_PROF, most)
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except Exception:  # it has broken what pytest itself works with, such as a file that it closed
                return item.nodeid
            signal.setitimer(signal.ITIMER_PROF, 0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            if session.testsfailed:
                return item.nodeid
            if not limited:
                self.usual[item.nodeid] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return None


def verdicts(mutants: list[Mutant], tests: dict[str, tuple[str, ...]], jobs: int) -> Iterator[tuple[Mutant, Verdict]]:
    """Each mutant with what became of it, as they come, `jobs` side by side.

    Times are those of the processor: a loaded machine kills no mutant. The test that saw the last mistake is asked
    first about the next one.

    Raises:
        TestsFailError: the tests fail without a mistake.
    """
    for files in dict.fromkeys(tests[mutant.module] for mutant in mutants):
        group = [mutant for mutant in mutants if tests[mutant.module] == files]
        rest, usual = list[Mutant](), dict[str, float]()
        for line in _collected(group, files, jobs):
            if "failed" in line:
                raise TestsFailError(line["failed"])
            usual = line.get("usual", usual)
            rest += [group[i] for i in line.get("anew", ())]
            if "verdict" in line:
                yield group[line["mutant"]], line["verdict"]
        starts = ((mutant, partial(_anew, mutant, files, usual)) for mutant in rest)
        for mutant, verdict, _ in race(starts, jobs):
            yield mutant, verdict


def _collected(mutants: list[Mutant], files: tuple[str, ...], jobs: int) -> Iterator[dict[str, Any]]:
    """What a process says that collects the tests once and runs them for each of the mutants."""
    reading, writing = os.pipe()

    def run() -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            return _pytest(_Runner(mutants, {}, jobs, out), files)

    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = run()
        finally:
            os._exit(code)
    os.close(writing)
    ended = False
    try:
        with os.fdopen(reading) as lines:
            yield from map(json.loads, lines)
        ended = True
    finally:
        if not ended:
            os.kill(pid, signal.SIGTERM)
        status = os.waitpid(pid, 0)[1]
    if status:
        raise RuntimeError(f"the tests did not run to their end (status {status}): {', '.join(files)}")


def _anew(mutant: Mutant, files: tuple[str, ...], usual: dict[str, float]) -> int:
    """For a mistake outside of a function: all is imported again, with it."""
    compile(mutant.source, mutant.module, "exec")  # else what is no Python would count as killed
    sys.meta_path.insert(0, Finder(f"yaie_engine.{mutant.module}", mutant.source))
    return _pytest(_Runner([], usual, 1, None), files)


def _pytest(runner: _Runner, files: tuple[str, ...]) -> int:
    silence()
    os.environ.update(YAIE_MUTANT="", YAIE_SHRINK="0", YAIE_EXAMPLES=str(EXAMPLES), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.path.insert(0, str(ROOT))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "yaie_engine")]:
        if not name.startswith("tests.mutation"):
            del sys.modules[name]  # loaded without the mistake, perhaps by other tests of this process
    code = pytest.main([*_QUIET, *(str(ROOT / "tests" / f"{file}.py") for file in files)], plugins=[runner])
    if code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):  # the latter: a file cannot be imported
        return 1
    return 0 if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else 99
