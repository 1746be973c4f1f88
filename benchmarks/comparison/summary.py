"""Medians, spread and ratios, from the JSON of a comparison."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaie_magic.bench.trial import FIGURES, Figure

from .peer import OURS, PEERS


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def values(row: Mapping[str, Any], figure: Figure) -> list[float]:
    """A figure in each round."""
    return [each["figures"][figure.name] for each in row["repetitions"]]


def usable(row: Mapping[str, Any]) -> bool:
    """Whether it has figures at all."""
    return bool(row["repetitions"]) and not row["problem"]


def rounds(workload: Mapping[str, Any]) -> int:
    """The rounds that it was measured in: as many as its rows with the fewest have; 0 where none has figures."""
    return min((len(row["repetitions"]) for row in workload["rows"] if usable(row)), default=0)


def run_of(workload: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """How a workload of `run` was measured: one that joined it later keeps that itself."""
    return {**run, **workload.get("run", {})}


def ours(workload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Our row, when it has figures."""
    rows: Sequence[Mapping[str, Any]] = workload["rows"]
    return next((row for row in rows if row["peer"] == OURS and usable(row)), None)


def ratio(mine: Mapping[str, Any], theirs: Mapping[str, Any], figure: Figure) -> Spread:
    """Ours over theirs, round by round: what disturbed a round disturbed both."""
    pairs = zip(values(mine, figure), values(theirs, figure), strict=True)
    return Spread.of([a / b for a, b in pairs])


def best(workload: Mapping[str, Any], figure: Figure) -> Mapping[str, Any] | None:
    """The row of the best peer: not ours, no yardstick."""
    rows: list[Mapping[str, Any]] = [
        row for row in workload["rows"] if usable(row) and row["peer"] != OURS and not is_yardstick(row)
    ]
    if not rows:
        return None
    return (min if figure.less else max)(rows, key=lambda row: statistics.median(values(row, figure)))


def is_yardstick(row: Mapping[str, Any]) -> bool:
    """Whether the row is one that nobody competes with."""
    peer = PEERS.get(row["peer"])
    return peer is not None and peer.yardstick


def is_native(run: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the peer is built for the CPU it ran on, where that matters; no ratio is formed with one that is not."""
    return bool(run["peers"].get(row["peer"], {}).get("native", "yes") == "yes")


def headline(workload: Mapping[str, Any]) -> Figure:
    """The figure that a workload is about."""
    return FIGURES[workload["name"]][0]


def foreign(row: Mapping[str, Any]) -> float:
    """The largest share that others took while the row was measured."""
    shares: list[float] = [each["foreign"] for each in row["repetitions"]]
    return max(shares)
