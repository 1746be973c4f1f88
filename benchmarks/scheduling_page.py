"""The part of docs/performance.md about scheduling and matching, from the JSON of `benchmarks/scheduling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .run_file import RunPart
from .scheduling_growth import NOTES, TARGET, Growth


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


def _lines(run: Mapping[str, Any]) -> Iterator[str]:
    yield from _share(run)
    yield from _growth(run)


PART = RunPart("scheduling", _lines)
