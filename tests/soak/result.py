"""The table of a soak: one line for each row, and the same as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

OK, PART, RED, NOT_RUN = "ok", "ok in part", "RED", "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """How one row ended; `size` and `seed` repeat it."""

    row: int
    what: str
    gate: str
    size: int
    seed: int
    done: str = ""
    figure: str = ""
    faults: tuple[str, ...] = ()
    times: str = ""
    seconds: float = 0.0
    skipped: str = ""
    part: str = ""

    @property
    def verdict(self) -> str:
        """Red when the gate does not hold; a row of which a part could not run proves less and is not green.

        One that was asked for in so few minutes that only a part of it fits is green in part, and says so.
        """
        return RED if self.faults else NOT_RUN if self.skipped else PART if self.part else OK

    @property
    def told(self) -> str:
        """The figure, and what was not run."""
        return "; ".join(filter(None, (self.figure, self.skipped and f"{NOT_RUN}: {self.skipped}", self.part)))


@dataclass(slots=True)
class Soak:
    """All of one run."""

    minutes: float
    seed: int
    machine: dict[str, str | int | float]
    complete: bool = False
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)

    @property
    def red(self) -> list[Result]:
        """The rows whose gate does not hold."""
        return [result for result in self.results if result.verdict == RED]

    @property
    def not_run(self) -> list[Result]:
        """The rows that were asked for and did not run, or not whole."""
        return [result for result in self.ordered() if result.verdict == NOT_RUN]

    @property
    def in_part(self) -> list[Result]:
        """The rows for which the minutes were too few by design."""
        return [result for result in self.ordered() if result.verdict == PART]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {**dataclasses.asdict(self), "results": [dataclasses.asdict(each) for each in self.ordered()]}
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def ordered(self) -> list[Result]:
        """By row."""
        return sorted(self.results, key=lambda result: result.row)

    def table(self) -> str:
        """As text: what was done, the figure, the gate and the verdict; below a row what was measured beside."""
        lines = [f"{'row':>3}  {'what':<48} {'size':<28} {'seconds':>7}  verdict"]
        for one in self.ordered():
            lines.append(f"{one.row:>3}  {one.what:<48} {one.done:<28} {one.seconds:>7.0f}  {one.verdict}")
            lines.append(f"     {one.told}   [gate: {one.gate}]")
            lines += [f"     {one.times}"] if one.times else []
            lines += [f"     ! {fault}" for fault in one.faults[:5]]
            if one.verdict == RED:
                lines.append(f"     again: ./scripts/soak --rows {one.row} --size {one.size} --seed {one.seed}")
        return "\n".join(lines)

    def summary(self) -> str:
        """One line."""
        count = {verdict: sum(one.verdict == verdict for one in self.results) for verdict in (OK, PART, RED, NOT_RUN)}
        told = ", ".join(f"{number} {verdict}" for verdict, number in count.items() if number or verdict != PART)
        whole = "" if self.complete else "; the run did not end"
        return f"{len(self.results)} rows in {self.seconds / 60:.1f} minutes, seed {self.seed}: {told}{whole}"


def read(path: Path) -> Soak:
    """A run that was written.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        results = [Result(**{**one, "faults": tuple(one["faults"])}) for one in found.pop("results")]
        return Soak(**found, results=results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: no run of scripts/soak ({error})") from error
