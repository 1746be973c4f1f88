"""Processes that end whatever a mistake makes them do, leave nothing behind, and die of no loaded machine."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.mutation import jobs
from tests.mutation.jobs import TOLD, race


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(jobs, "LONGEST_SLEEP", 0.2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def computes() -> int:
    end = time.process_time() + 0.4
    while time.process_time() < end:
        sum(range(10**4))
    return 0


def sleeps() -> int:
    time.sleep(60)
    return 0


def spins() -> int:
    signal.setitimer(signal.ITIMER_PROF, 0.05)
    while True:
        pass


def writes() -> int:
    Path("left-behind").write_text("x" * 10)
    TOLD.write_text("seen")
    return 1


def test_who_works_is_left_alone_and_who_waits_for_ever_is_ended(short: Path) -> None:
    """Longer than the longest sleep, on the processor or ready for it: that is what a loaded machine looks like."""
    here = set(os.listdir())
    starts = [("computes", computes), ("sleeps", sleeps), ("spins", spins), ("writes", writes)]
    found = {key: (verdict, told) for key, verdict, told in race(starts, 2)}
    assert found == {
        "computes": ("survived", ""),
        "sleeps": ("timed out", ""),
        "spins": ("timed out", ""),
        "writes": ("killed", "seen"),
    }
    assert set(os.listdir()) == here and not os.listdir(short), "each had a folder of its own, and that is gone"


def test_an_end_that_no_test_made_is_no_verdict() -> None:
    def fails() -> int:
        raise OSError("no such thing")

    def is_killed() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    for function, why in ((fails, "no such thing"), (is_killed, "-9"), (lambda: 7, "7")):
        with pytest.raises(RuntimeError, match=why):
            list(race([("one", function)], 1))
