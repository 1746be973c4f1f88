"""The interval of a slope holds the truth, and a run that is too short says so."""

from __future__ import annotations

import random

from tests.soak.slope import Slope, slope


def drifting(rate: float, samples: int, every: float, chance: random.Random, alike: float) -> Slope:
    """The slope found in memory that grows by `rate` MB/h under noise that goes on from sample to sample."""
    noise, sizes = 0.0, list[float]()
    for number in range(samples):
        noise = alike * noise + chance.gauss(0, 0.5)
        sizes.append(300 + rate * number * every / 3600 + noise)
    found = slope([number * every for number in range(samples)], sizes)
    assert found is not None
    return found


def test_the_interval_holds_the_truth() -> None:
    """Also where each sample is much like the one before, in which least squares alone would be too sure."""
    chance = random.Random(7)
    for alike in (0.0, 0.7):
        held = sum(abs((found := drifting(12, 300, 20, chance, alike)).rate - 12) <= found.half for _ in range(40))
        assert held >= 34, f"{held} of 40 with {alike}"


def test_a_leak_is_told_from_nothing_in_hours_and_not_in_a_minute() -> None:
    chance = random.Random(8)
    hours, minute = drifting(5, 2000, 4, chance, 0.3), drifting(5, 40, 1.5, chance, 0.3)
    assert hours.rate - hours.half > 0 and "too short" not in str(hours)
    assert minute.half > 20 and str(minute).endswith("(26 samples in 38 s); too short to tell 1 MB/h")


def test_the_warm_up_is_left_out() -> None:
    sizes = [100.0 + 50 * number for number in range(10)] + [600.0] * 20
    found = slope([float(number) for number in range(30)], sizes)
    assert found is not None and (found.rate, found.half, found.samples) == (0.0, 0.0, 20)


def test_few_samples_tell_nothing() -> None:
    assert slope([0.0, 1.0, 2.0], [5.0, 5.5, 6.0]) is None and slope([], []) is None
