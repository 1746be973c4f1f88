"""What a part finds: checks, measurements, facts. One JSON line each, so that a part that dies leaves what it had."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """Something about the machine or the run that is neither right nor wrong."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is right or wrong. `detail` says how far off it is, or what went wrong."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that cannot be tried on this machine, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A median of `count` samples between `low` and `high`, all in `unit`.

    `target` names the target it counts for; `judged` is then the figure that the target is about, in its unit.
    `note` says the same in other units, for people.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    count: int
    note: str = ""
    target: str = ""
    judged: float | None = None


Record = Fact | Check | Skip | Measurement
KINDS: dict[str, type[Record]] = {"fact": Fact, "check": Check, "skip": Skip, "measurement": Measurement}


def to_line(record: Record) -> str:
    """One line of JSON."""
    kind = type(record).__name__.lower()
    return json.dumps({"kind": kind, **asdict(record)})


def from_line(line: str) -> Record:
    """The record of a line of `to_line`."""
    data = json.loads(line)
    return KINDS[data.pop("kind")](**data)


class RecordFile:
    """Where a part writes its records, and where the run that started it reads them while they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def add(self, record: Record) -> None:
        """Append one record; it is on disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(to_line(record) + "\n")

    def new(self) -> list[Record]:
        """The records that came since the last call; a line that is still being written comes next time."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return [from_line(line) for line in whole.decode().splitlines()]
