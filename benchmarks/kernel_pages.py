"""The parts of docs/performance.md about kernels of notebooks: what showing costs, and what a busy kernel costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .run_file import RunPart

SHOWN = {
    "slower": "slower by the engine's clock",
    "busier": "more processor time, all threads",
    "kept": "engine's thread kept waiting",
}
PLACES = ("in the kernel", "detached")
LOADS = ("idle", "busy")


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The median with the smallest and the largest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _shown(run: Mapping[str, Any]) -> Iterator[str]:
    pairs = len(next(iter(run["shares"].values())))
    yield f"Medians of {pairs} pairs of {run['tokens']} tokens each way, shown less quiet, in per cent:"
    yield ""
    yield "| | % |"
    yield "|---|---|"
    for name, values in run["shares"].items():
        yield f"| {SHOWN.get(name, name)} | {spread([100 * value for value in values])} |"


def table(speeds: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[str]:
    """Tokens a second of each engine, by load."""
    yield "| engine | kernel idle, tok/s | kernel busy, tok/s | kept under load |"
    yield "|---|---|---|---|"
    for place in PLACES:
        idle, busy = (speeds[place][load] for load in LOADS)
        kept = [b / a for a, b in zip(idle, busy, strict=True)]
        yield f"| {place} | {spread(idle)} | {spread(busy)} | {spread(kept, 2)} |"


def gains(speeds: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[str]:
    """How many times as fast the detached engine is."""
    for load in LOADS:
        here, apart = (speeds[place][load] for place in PLACES)
        gain = [b / a for a, b in zip(here, apart, strict=True)]
        yield f"kernel {load}: detached is {spread(gain, 2)} times as fast"


def _busy(run: Mapping[str, Any]) -> Iterator[str]:
    rounds = len(run["speeds"][PLACES[0]][LOADS[0]])
    yield f"Medians of {rounds} rounds of {run['tokens']} tokens:"
    yield ""
    yield from table(run["speeds"])
    yield ""
    yield "; ".join(gains(run["speeds"])) + "."


def _none(run: Mapping[str, Any]) -> Iterator[str]:
    """They have no targets."""
    return iter(())


DISPLAY = RunPart("display_cost", _shown, _none)
DETACHED = RunPart("detached_cost", _busy, _none)
