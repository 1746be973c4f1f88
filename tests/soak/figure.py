"""What one row of the soak found."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """How much was done, what came out, and what breaks the gate.

    A gate asks for liveness, counts and equality. Seconds and bytes go to `times`, which is printed and never judged:
    they say more about the machine than about the program.
    """

    size: str
    figure: str
    faults: tuple[str, ...] = ()
    times: str = ""
    skipped: str = ""
    """Why nothing ran, or not all of it, on a machine that lacks what the row needs."""
    part: str = ""
    """What of the row was reached, when the minutes asked for are too few for all of it by design."""


def slowest(seconds: list[float]) -> str:
    """Median, 99th percentile and worst of some times, for `times`."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    median, high = ordered[len(ordered) // 2], ordered[math.ceil(0.99 * (len(ordered) - 1))]
    return f"median {1e3 * median:.0f}, p99 {1e3 * high:.0f}, worst {1e3 * ordered[-1]:.0f} ms"
