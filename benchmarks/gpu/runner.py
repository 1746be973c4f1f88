"""Runs parts one after the other, each in a process of its own with a limit; one that dies or hangs is a finding."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .parts import Part
from .records import Check, Record, RecordFile

POLL_S = 0.1


@dataclass(slots=True)
class PartResult:
    """How a part ended: "ok", "failed" or "out of time"."""

    part: Part
    outcome: str = "running"
    seconds: float = 0.0
    records: list[Record] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        """The checks that are wrong."""
        return [record for record in self.records if isinstance(record, Check) and not record.ok]


@dataclass(frozen=True, slots=True)
class Runner:
    """`command` starts a part: its name, the file for its records and its seconds are put behind it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    scratch: Path
    log: Path
    on_news: Callable[[PartResult], None]

    def run(self, part: Part, seconds: float) -> PartResult:
        """Run one part for at most `seconds`."""
        result = PartResult(part)
        file = RecordFile(self.scratch / f"{part.name}.jsonl")
        start = time.monotonic()
        with self.log.open("ab") as log:
            log.write(f"\n=== {part.name}\n".encode())
            log.flush()
            begins = log.tell()
            command = [*self.command, "--child", part.name, "--records", str(file.path), "--seconds", f"{seconds:.0f}"]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,
            )
            try:
                code = self._follow(process, file, result, start + seconds)
            finally:
                _end(process)
        result.seconds = time.monotonic() - start
        result.records += file.new()
        self._conclude(result, code, seconds, begins)
        self.on_news(result)
        return result

    def _follow(
        self, process: subprocess.Popen[bytes], file: RecordFile, result: PartResult, deadline: float
    ) -> int | None:
        """Pass records on until the process ends (its code) or the time is over (None)."""
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_S)
            if news := file.new():
                result.records += news
                self.on_news(result)
        return None

    def _conclude(self, result: PartResult, code: int | None, seconds: float, begins: int) -> None:
        if code is None:
            result.outcome = "out of time"
            result.records.append(Check(f"{result.part.name} ends", False, f"stopped after its {seconds:.0f} s"))
        elif code != 0:
            result.outcome = "failed"
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            result.records.append(Check(f"{result.part.name} ends", False, f"{how}: {self._last_words(begins)}"))
        else:
            result.outcome = "failed" if result.failed else "ok"

    def _last_words(self, begins: int) -> str:
        """The last line that says something, of what the part printed."""
        with self.log.open("rb") as log:
            log.seek(begins)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it printed nothing"


def child_command(script: Path, options: Sequence[str]) -> list[str]:
    """Starts `script` again for one part."""
    return [sys.executable, str(script), *options]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started. One that the driver holds is left behind after a few seconds."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
