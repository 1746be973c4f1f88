"""The one JSON of a run, rewritten with every finding; its short table; its exit code."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from . import fusing
from .records import Check, Fact, Measurement, Record, Skip
from .runner import PartResult
from .targets import Verdict, judge

FORMAT = 1
Kind = TypeVar("Kind", Fact, Check, Skip, Measurement)
ALL_WELL, CHECKS_FAILED, TARGETS_MISSED = 0, 1, 3  # 2 is a wrong command line


@dataclass(slots=True)
class Report:
    """Everything a run found. `judged` False: no targets, because the run was not on a GPU."""

    started: str
    judged: bool
    results: list[PartResult] = field(default_factory=list)
    begun: list[Record] = field(default_factory=list)
    seconds: float = 0.0

    def records(self) -> list[Record]:
        """All records of all parts."""
        return [*self.begun, *(record for result in self.results for record in result.records)]

    def update(self, result: PartResult) -> None:
        """Take in what is new of a part."""
        if not any(each is result for each in self.results):
            self.results.append(result)

    @property
    def verdicts(self) -> list[Verdict]:
        """Targets met or missed."""
        return judge(self._of(Measurement) if self.judged else [])

    @property
    def failed(self) -> list[Check]:
        """Checks that are wrong."""
        return [check for check in self._of(Check) if not check.ok]

    @property
    def exit_code(self) -> int:
        """1 when a check failed or a part did not end, 3 when only targets were missed, else 0."""
        if self.failed:
            return CHECKS_FAILED
        return TARGETS_MISSED if any(verdict.met is False for verdict in self.verdicts) else ALL_WELL

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "format": FORMAT,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "on_gpu": self.judged,
            "exit_code": self.exit_code,
            "facts": {fact.name: fact.value for fact in self._of(Fact)},
            "parts": [
                {"name": each.part.name, "outcome": each.outcome, "seconds": round(each.seconds, 1)}
                for each in self.results
            ],
            "targets": [verdict.to_dict() for verdict in self.verdicts],
            "checks": [asdict(check) for check in self._of(Check)],
            "measurements": [asdict(measurement) for measurement in self._of(Measurement)],
            "skipped": [asdict(skip) for skip in self._of(Skip)],
        }

    def write(self, path: Path) -> None:
        """Replace the file at once, so that whoever reads it always finds a whole one."""
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        os.replace(beside, path)

    def table(self) -> str:
        """What a person reads at the end."""
        lines = ["", "part         outcome        seconds   checks"]
        for each in self.results:
            checks = [record for record in each.records if isinstance(record, Check)]
            good = sum(check.ok for check in checks)
            lines.append(f"{each.part.name:<13}{each.outcome:<13}{each.seconds:>9.1f}   {good} of {len(checks)}")
        lines += [f"not tried: {skip.name}: {skip.reason}" for skip in self._of(Skip)]
        lines += [f"FAILED: {check.name}: {check.detail}" for check in self.failed]
        lines += ["", f"{'measured':<66}{'median':>12}", *map(_measured, self._of(Measurement))]
        lines += ["", *fusing.lines({fact.name: fact.value for fact in self._of(Fact)})]
        if self.judged:
            lines += ["", *map(_verdict, self.verdicts)]
        else:
            lines += ["", "no GPU: the figures above say nothing, and no target is judged"]
        return "\n".join(lines)

    def _of(self, kind: type[Kind]) -> list[Kind]:
        return [record for record in self.records() if isinstance(record, kind)]


def _measured(one: Measurement) -> str:
    spread = f"  ({one.low:.4g} to {one.high:.4g})" if one.count > 1 else ""
    return f"{one.name:<66}{one.value:>12.4g} {one.unit}{spread}  {one.note}".rstrip()


def _verdict(one: Verdict) -> str:
    reached = "" if one.reached is None else f"{one.reached:.4g} {one.target.unit}"
    return f"{one.target.words:<72} {one.target.goal_words:<22} {reached:<16} {one.words}"
