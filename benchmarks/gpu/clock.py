"""Medians of device times: work is replayed as one graph, over buffers that together exceed the L2 cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bench import Bench

Call = Callable[[], None]
MOST_BUFFERS = 64
L2_TIMES = 3
SAMPLES, QUICK_SAMPLES = 9, 3
SAMPLE_S = 0.01
MOST_REPEATS = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the median of `count` samples and their range."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """From samples."""
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))

    def times(self, factor: float) -> Timing:
        """The same in another measure."""
        return Timing(self.median * factor, self.low * factor, self.high * factor, self.count)


def num_buffers(call_bytes: int, l2_bytes: int) -> int:
    """How many sets of buffers of `call_bytes` a rotation needs, so that no call finds its data in the L2 cache."""
    return max(1, min(MOST_BUFFERS, -(-L2_TIMES * l2_bytes // max(call_bytes, 1))))


def time_calls(bench: Bench, calls: Sequence[Call], samples: int = SAMPLES) -> Timing:
    """Time of one of `calls`, which do the same on different buffers: all of them are one graph, replayed."""

    def all_of_them() -> None:
        for call in calls:
            call()

    replay = bench.capture(all_of_them)
    bench.seconds(replay, 1)
    once = bench.seconds(replay, 1)
    repeats = max(1, min(MOST_REPEATS, round(SAMPLE_S / max(once, 1e-9))))
    return Timing.of([bench.seconds(replay, repeats) / repeats / len(calls) for _ in range(samples)])
