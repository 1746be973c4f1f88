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


def _rows(run: Mapping[str, Any]) -> list[Growth]:
    return [
        Growth(**{**given, "sizes": tuple(given["sizes"]), "microseconds": tuple(given["microseconds"])})
        for given in run["growth"]
    ]


def misses(run: Mapping[str, Any]) -> Iterator[str]:
    """What grows faster than the target allows, and a share of the books that is over it."""
    for row in _rows(run):
        if row.over:
            grows = f"{max(row.doublings):.2f} times for twice the size"
            grows += f" and {row.microseconds[-1] / row.microseconds[0]:.2f} in all" if row.flat else ""
            yield f"{row.table}, {row.name}: {grows}, at most {TARGET}"
    if run["share"]:
        from . import scheduling_share

        share = scheduling_share.books(run["share"][-1])
        if share > scheduling_share.TARGET:
            yield f"the books take {share:.1%} of a step, at most {scheduling_share.TARGET:.0%}"


def _growth(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"How cost grows; a doubling is what twice the size takes, at most {TARGET} times as long:"
    yield ""
    yield "| | microseconds | largest doubling | |"
    yield "|---|---|---|---|"
    rows = _rows(run)
    for row in rows:
        table = row.table if row.table in NOTES else ""
        ends = f"{row.microseconds[0]:,.1f} at {row.sizes[0]:,}, {row.microseconds[-1]:,.1f} at {row.sizes[-1]:,}"
        yield f"| {table}: {row.name} | {ends} | {max(row.doublings):.2f} | {'**over**' if row.over else ''} |"
    for absent in [table for table in NOTES if table not in {row.table for row in rows}]:
        yield f"| {absent} | not measured in this run | | |"


def _lines(run: Mapping[str, Any]) -> Iterator[str]:
    yield from _share(run)
    yield from _growth(run)


PART = RunPart("scheduling", _lines, misses)
