"""The part of docs/performance.md about scheduling and matching, from the JSON of `benchmarks/scheduling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .run_file import measured, refusal
from .scheduling_growth import NOTES, TARGET, Growth

__all__ = ["BEGIN", "END", "KIND", "RESULTS", "refusal", "render", "take_over"]

KIND = "scheduling"
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "scheduling.json"
BEGIN, END = "<!-- scheduling: begin (written by scripts/performance) -->", "<!-- scheduling: end -->"
COMMAND = "benchmarks/scheduling --out build/scheduling.json"


def render(run: Mapping[str, Any] | None) -> str:
    """The part between the markers."""
    if run is None:
        return f"**Not measured yet.** `{COMMAND}` measures it."
    return "\n".join([measured(run), "", *_share(run), *_growth(run)])


def take_over(run: Mapping[str, Any]) -> None:
    """Nothing else belongs to a run."""


def _share(run: Mapping[str, Any]) -> Iterator[str]:
    """Nothing where the run left the model out."""
    if not run["share"]:
        return
    from .scheduling_share import BOOKS, PHASES, TARGET, books

    yield f"Processor time of a decode step by phase, one thread, in ms; {', '.join(BOOKS)} together are the books,"
    yield f"of which a step of {run['share'][-1]['sequences']} sequences may spend {TARGET:.0%}:"
    yield ""
    yield f"| sequences | {' | '.join(PHASES)} | books |"
    yield "|---|" + "---|" * (len(PHASES) + 1)
    for row in run["share"]:
        over = ", **over**" if row is run["share"][-1] and books(row) > TARGET else ""
        cells = " | ".join(f"{row[name]:.2f}" for name in PHASES)
        yield f"| {row['sequences']} | {cells} | {books(row):.1%}{over} |"
    yield ""


def _growth(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"How cost grows; a doubling is what twice the size takes, at most {TARGET} times as long:"
    yield ""
    yield "| | microseconds | largest doubling | |"
    yield "|---|---|---|---|"
    for given in run["growth"]:
        row = Growth(**{**given, "sizes": tuple(given["sizes"]), "microseconds": tuple(given["microseconds"])})
        table = row.table if row.table in NOTES else ""
        ends = f"{row.microseconds[0]:,.1f} at {row.sizes[0]:,}, {row.microseconds[-1]:,.1f} at {row.sizes[-1]:,}"
        yield f"| {table}: {row.name} | {ends} | {max(row.doublings):.2f} | {'**over**' if row.over else ''} |"
