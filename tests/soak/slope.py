"""How fast something grows, with the interval that the samples allow: a rate without it says nothing.

Least squares over the samples after the warm-up. What memory does in one round it tends to do in the next, so that the
usual standard error is too small: it is widened by the residuals' correlation from one sample to the next (the
effective sample size of a first-order autoregression, as in Wilks, Statistical Methods in the Atmospheric Sciences).
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass

WARM_UP = 1 / 3
"""Of the samples, the first: caches and pools fill up meanwhile."""
FEWEST = 10
LEVEL = 0.95
TOLD = 1.0
"""MB/h that a run must be able to tell from nothing before its slope says that memory is constant."""


@dataclass(frozen=True, slots=True)
class Slope:
    """MB/h; the true value lies within `half` of `rate` in 95 of 100 runs. `seconds`: from first to last sample."""

    rate: float
    half: float
    samples: int
    seconds: float

    def __str__(self) -> str:
        low, high = self.rate - self.half, self.rate + self.half
        told = f"{self.rate:+.1f} MB/h, 95 %: {low:+.1f} to {high:+.1f}"
        short = f"; too short to tell {TOLD:g} MB/h" if self.half > TOLD else ""
        return f"{told} ({self.samples} samples in {self.seconds:.0f} s){short}"


def slope(times: list[float], sizes: list[float]) -> Slope | None:
    """Of sizes in MB at times in seconds, the warm-up left out; None with too few samples."""
    first = math.ceil(WARM_UP * len(times))
    times, sizes = times[first:], sizes[first:]
    if len(times) < FEWEST or times[0] == times[-1]:
        return None
    line = statistics.linear_regression(times, sizes)
    rests = [size - line.intercept - line.slope * time for time, size in zip(times, sizes, strict=True)]
    squares = sum(rest * rest for rest in rests)
    spread = sum((time - statistics.fmean(times)) ** 2 for time in times)
    error = math.sqrt(squares / (len(times) - 2) / spread) * _widened(rests, squares)
    half = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2) * error
    return Slope(3600 * line.slope, 3600 * half, len(times), times[-1] - times[0])


def _widened(rests: list[float], squares: float) -> float:
    """By how much the standard error is too small."""
    if squares == 0:
        return 1.0
    alike = sum(before * after for before, after in itertools.pairwise(rests)) / squares
    alike = min(max(alike, 0.0), 0.99)
    return math.sqrt((1 + alike) / (1 - alike))
