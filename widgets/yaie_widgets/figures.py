"""Figures in the project's one notation: `1,024 tokens`, `56 ms`, runs of block ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DASH: Final = "\u2013"
TIMES: Final = "\u00d7"


def count(number: int) -> str:
    """Thousands with a comma."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 block`, `2 blocks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ranges(ids: Iterable[int], limit: int = 6) -> str:
    """Block ids in the order given, runs joined by a dash; beyond `limit` runs an ellipsis."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}{DASH}{last}" for first, last in runs[:limit]]
    return ", ".join([*shown, "…"] if len(runs) > limit else shown)


def seconds(value: float) -> str:
    """A duration: milliseconds below ten seconds, seconds above."""
    if value >= 10:
        return f"{value:,.1f} s"
    milliseconds = value * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def memory(num_bytes: int) -> str:
    """Bytes in the unit that leaves the fewest digits: `640 B`, `3.1 KiB`, `12.0 MiB`."""
    if num_bytes < 1000:
        return f"{num_bytes} B"
    size, unit = next(
        (num_bytes / 2**power, unit)
        for power, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB"))
        if num_bytes < 1000 * 2**power or unit == "GiB"
    )
    return f"{size:,.1f} {unit}"


def listed(names: Iterable[str], limit: int = 4) -> str:
    """Names on one line; beyond `limit` the number of the others."""
    every = list(names)
    shown = ", ".join(every[:limit])
    return f"{shown} +{len(every) - limit}" if len(every) > limit else shown
