"""A pytest plug-in: runs what is collected in an order drawn from a seed until the time is over, and counts.

Tests of one file stay together, because they share what their fixtures build.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SEED, SECONDS, REPORT = "YAIE_SOAK_SEED", "YAIE_SOAK_SECONDS", "YAIE_SOAK_REPORT"


class Pace:
    """The end of the time, and what happened until then."""

    def __init__(self) -> None:
        self.until = 0.0
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []
        self.ran: list[str] = []
        self.skipped: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The files in random order, and the tests of each as they stand."""
        files = sorted({str(item.path) for item in items})
        random.Random(int(os.environ[SEED])).shuffle(files)
        items.sort(key=lambda item: files.index(str(item.path)))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What is left of them when marks and words have been looked at; the time begins."""
        self.counts["collected"] = len(session.items)
        self.until = time.time() + float(os.environ[SECONDS])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test counts once: by its call, or by the part around it that went wrong."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.skip(report)
        elif report.when == "call":
            self.counts["passed"] += 1
            self.ran.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be read, or that says itself that it does not run."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.skip(report)

    def skip(self, report: Any) -> None:
        """What did not run, and why; a test that must fail and did is no such thing."""
        if hasattr(report, "wasxfail"):
            self.ran.append(report.nodeid)
        else:
            said = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            self.skipped[report.nodeid] = said.removeprefix("Skipped: ")

    def pytest_runtest_logfinish(self) -> None:
        """Stop between two tests."""
        if time.time() > self.until:
            self.session.shouldstop = "the time is over"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep what can be told to stop."""
        self.session = session

    def pytest_sessionfinish(self) -> None:
        """Write the counts."""
        found = {**self.counts, "failed": self.failed, "skipped": self.skipped, "ran": self.ran}
        Path(os.environ[REPORT]).write_text(json.dumps(found), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Watch this run."""
    config.pluginmanager.register(Pace(), "soak-pace")
