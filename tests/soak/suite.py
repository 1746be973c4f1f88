"""Rows whose tests exist already: they are run again and again, in another order each time, until the time is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .figure import Figure
from .pace import REPORT, SECONDS, SEED

ROOT = Path(__file__).resolve().parents[2]
LONGEST_TEST_S = 400.0
"""After the time is over, for the test that runs then."""
SLOW = 3.0
"""Times the seconds that all tests take on two quiet cores; so long a first pass may take on a slower machine."""


@dataclass
class Passes:
    """What all passes over a suite gave together."""

    number: int = 0
    passed: int = 0
    collected: int = 0
    ran: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, report: Path, code: int, log: str) -> None:
        """Take over one pass; one that ended without its report is a fault."""
        self.number += 1
        if not report.is_file():
            self.failed.append(f"pytest ended with {code}: {log.strip()[-300:]}")
            return
        found = json.loads(report.read_text(encoding="utf-8"))
        self.collected = found.get("collected", 0)
        self.passed += found.get("passed", 0)
        self.ran |= set(found.get("ran", ()))
        self.failed += found["failed"]
        self.skipped |= found["skipped"]
        if not self.collected and not self.skipped:
            self.failed.append("no test was collected")
        elif not (self.passed or self.failed or self.skipped):
            self.failed.append("no test passed")

    @property
    def left_out(self) -> str:
        """The tests that did not run, by what they said: a row that lacks any of them was not run as it should be."""
        reasons = Counter(self.skipped.values())
        return "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())

    @property
    def unreached(self) -> str:
        """That no test or not each of them was reached before the time was over; empty when each was."""
        reached = len(self.ran | self.skipped.keys() | set(self.failed))
        return f"{reached} of {self.collected} tests" if reached < self.collected else ""


def suite(
    *paths: str, whole_s: float = 0.0, keyword: str = "", each: int = 1, noun: str = "tests", full: bool = False
) -> Callable[[int, int], Figure]:
    """A row over these test files. Its size is in seconds; a test that passes stands for `each` times `noun`.

    `whole_s`: what all tests take. In as many seconds or more each of them is run, however slow the machine is, or the
    row says that it was not run whole; in less it is a row in part. `full`: tests of the full grids are run as well.
    """
    chosen = [*([] if full else ["-m", "not full"]), *(["-k", keyword] if keyword else [])]

    def run(size: int, seed: int) -> Figure:
        lost = tuple(f"{path} is not there" for path in paths if not (ROOT / path.split("::")[0]).exists())
        if lost:
            return Figure("0", "its tests were moved or are gone", lost)
        passes, left, start = Passes(), float(size), time.monotonic()
        few = size < whole_s
        while not passes.failed and left > 0 and (passes.passed or not passes.skipped):
            first = 0.0 if passes.number or few else SLOW * whole_s
            _pass(passes, [*paths, *chosen], seed + passes.number, max(left, first))
            left = size - (time.monotonic() - start)
        done = f"{each * passes.passed} {noun}"
        told = f"{len(passes.failed)} failed"
        whole = f"{passes.number} passes over {passes.collected} tests, {len(passes.ran)} of them were reached"
        lacks, part = passes.left_out, ""
        if passes.unreached and few:
            part = f"in part: {passes.unreached}; all take about {whole_s:.0f} s, {size} s were asked for"
        elif passes.unreached:
            lacks = "; ".join(filter(None, (lacks, f"not whole: {passes.unreached}")))
        return Figure(done, told, tuple(passes.failed), whole, lacks, part)

    return run


def _pass(passes: Passes, chosen: list[str], seed: int, left: float) -> None:
    command = [sys.executable, "-m", "pytest", "-q", *chosen, "-p", "tests.soak.pace", "-p", "no:cacheprovider"]
    command += [f"--hypothesis-seed={seed}"]
    with tempfile.TemporaryDirectory(prefix="yaie-soak-") as folder:
        report = Path(folder) / "report.json"
        paced = {SEED: str(seed), SECONDS: str(left), REPORT: str(report)}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **paced},
            capture_output=True,
            text=True,
            check=False,
            timeout=left + LONGEST_TEST_S,
        )
        print(done.stdout, done.stderr, sep="", flush=True)
        passes.add(report, done.returncode, done.stdout + done.stderr)
