"""Functions that run in processes forked for them, each in a folder of its own, and end whatever they do."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import psutil

Verdict = Literal["killed", "timed out", "survived"]
Key = TypeVar("Key")
LONGEST_SLEEP = 15.0
"""Seconds for which a process may wait for something without any processor time: no test of these sleeps."""
TOLD = Path("told")
"""What a function writes there is handed on."""
_BROKEN = 99


@dataclass(slots=True)
class _Job(Generic[Key]):
    key: Key
    folder: str
    pid: int
    spent: float = -1.0
    since: float = 0.0
    hangs: bool = False

    def watch(self) -> None:
        """End a process that waits for ever. One that only gets no processor is ready to run, and is left alone."""
        process, now = psutil.Process(self.pid), time.monotonic()
        times = process.cpu_times()
        spent = times.user + times.system
        if spent != self.spent or process.status() == psutil.STATUS_RUNNING:
            self.spent, self.since = spent, now
        elif now - self.since > LONGEST_SLEEP:
            self.hangs = True
            os.kill(self.pid, signal.SIGKILL)

    def end(self, status: int) -> tuple[Key, Verdict, str]:
        """What its end says.

        Raises:
            RuntimeError: it was no end of a test.
        """
        told = Path(self.folder) / TOLD
        text = told.read_text() if told.is_file() else ""
        shutil.rmtree(self.folder, ignore_errors=True)
        if os.WIFSIGNALED(status) and (self.hangs or os.WTERMSIG(status) == signal.SIGPROF):
            return self.key, "timed out", text
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if code not in (0, 1):
            raise RuntimeError(f"ended with {code}, so that the tests did not run to their end: {self.key} {text}")
        return self.key, "killed" if code else "survived", text


def race(starts: Iterable[tuple[Key, Callable[[], int]]], jobs: int) -> Iterator[tuple[Key, Verdict, str]]:
    """Run each function, `jobs` side by side: 0 means that its mutant survived, 1 that it was killed.

    A function that gets a SIGPROF (its own limit) or waits for ever timed out.
    """
    waiting, running = iter(starts), list[_Job[Key]]()
    try:
        while True:
            while len(running) < jobs and (following := next(waiting, None)) is not None:
                running.append(_fork(*following))
            if not running:
                return
            for job in running[:]:
                pid, status = os.waitpid(job.pid, os.WNOHANG)
                if pid:
                    running.remove(job)
                    yield job.end(status)
                else:
                    job.watch()
            time.sleep(0.005)
    finally:
        for job in running:
            os.kill(job.pid, signal.SIGKILL)
            os.waitpid(job.pid, 0)
            shutil.rmtree(job.folder, ignore_errors=True)


def _fork(key: Key, function: Callable[[], int]) -> _Job[Key]:
    sys.stdout.flush()
    sys.stderr.flush()
    folder = tempfile.mkdtemp(prefix="yaie-mutant-")
    pid = os.fork()
    if pid:
        return _Job(key, folder, pid)
    code = _BROKEN
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(folder)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # where pytest makes `tmp_path`
        code = function()
    except BaseException as error:
        TOLD.write_text(repr(error))
    finally:
        os._exit(code)


def silence() -> None:
    """Nothing that the tests print is of interest."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
