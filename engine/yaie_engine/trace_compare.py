"""Two traces of the same work side by side: the first module whose output differs is where to look."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .trace import Trace, TraceLine

TOLERANCE = 1e-3
"""Usual bound of a relative difference: over the rounding of float32, under that of a mistake."""
AROUND = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """One module in both traces: `size` is the largest relative difference of norm, largest value and mark."""

    left: TraceLine
    right: TraceLine
    size: float
    words: str = ""


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """`pairs` in order; `first` is the index of the first that differs by more than `tolerance`, or None.

    `alone` says which lines have no counterpart.
    """

    pairs: list[Difference]
    first: int | None
    tolerance: float
    alone: str = ""

    def __str__(self) -> str:
        if not self.pairs:
            return f"nothing to compare{self.alone}"
        if self.first is None:
            most = max(pair.size for pair in self.pairs)
            within = f"within {self.tolerance:g} (largest difference {most:.1e})"
            return f"{len(self.pairs):,} lines agree {within}{self.alone}"
        bad = self.pairs[self.first]
        how = bad.words or _percent(bad.size)
        head = f"first difference: {bad.left.module} in step {bad.left.step} ({how}){self.alone}"
        start = max(0, self.first - AROUND)
        shown = self.pairs[start : self.first + AROUND + 1]
        width = max(len(pair.left.module) for pair in shown)
        rows = [f"  {'module':<{width}}  {'norm':>11} {'norm':>11} {'largest':>11} {'largest':>11} {'differs by':>10}"]
        for index, pair in enumerate(shown, start):
            mark = "  <-- first" if index == self.first else ""
            rows.append(f"  {pair.left.module:<{width}}  {_figures(pair)}{mark}")
        return "\n".join([head, *rows])

    __repr__ = __str__


def compare_traces(left: Trace, right: Trace, tolerance: float = TOLERANCE) -> TraceComparison:
    """Line by line: the n-th step of one with the n-th of the other, forward by forward, module by module."""
    ours, theirs = _keyed(left), _keyed(right)
    pairs = [_difference(line, theirs[key]) for key, line in ours.items() if key in theirs]
    first = next((i for i, pair in enumerate(pairs) if pair.words or not pair.size <= tolerance), None)
    count = len(ours.keys() ^ theirs.keys())
    return TraceComparison(pairs, first, tolerance, f"; {count:,} lines are in one trace only" if count else "")


def _keyed(trace: Trace) -> dict[tuple[int, int, str, int], TraceLine]:
    """Step by its place in the trace, forward, module, and which of several calls of it."""
    places = {step: place for place, step in enumerate(trace.steps)}
    found: dict[tuple[int, int, str, int], TraceLine] = {}
    calls: dict[tuple[int, int, str], int] = {}
    for line in trace.lines:
        key = (places[line.step], line.forward, line.module)
        calls[key] = calls.get(key, -1) + 1
        found[(*key, calls[key])] = line
    return found


def _difference(left: TraceLine, right: TraceLine) -> Difference:
    if left.shape != right.shape:
        return Difference(left, right, math.inf, f"shape {list(left.shape)} and {list(right.shape)}")
    if left.num_bad != right.num_bad:
        return Difference(left, right, math.inf, f"{left.num_bad:,} and {right.num_bad:,} NaN or infinite values")
    norm = max(left.norm, right.norm, 1e-12)
    size = max(
        abs(left.norm - right.norm) / norm,
        abs(left.largest - right.largest) / max(left.largest, right.largest, 1e-12),
        abs(left.mark - right.mark) / norm,
    )
    return Difference(left, right, size)


def _percent(size: float) -> str:
    return f"by {size:.2%} of its norm" if size < 10 else f"{size:.1e} times its norm"


def _figures(pair: Difference) -> str:
    left, right = pair.left, pair.right
    size = "other" if pair.words else f"{pair.size:.1e}"
    return f"{left.norm:>11.5g} {right.norm:>11.5g} {left.largest:>11.5g} {right.largest:>11.5g} {size:>10}"
