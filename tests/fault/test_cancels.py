"""Cancels anywhere: every reader hears of the end, every block comes back, and the others' answers are right."""

from __future__ import annotations

import pytest

from tests.fault.cancels import STATES, storm


@pytest.mark.parametrize(
    ("count", "overlap"),
    [(300, False), (300, True), pytest.param(10_000, False, marks=pytest.mark.full)],
)
def test_random_cancels_lose_nothing(count: int, overlap: bool) -> None:
    found = storm(count, seed=count, overlap=overlap)
    print(found)
    assert found.lost == 0 and not found.wrong and not found.leaked
    assert found.slowest <= 2
    assert found.cancels.total() >= count
    assert set(found.cancels) == {*STATES, "any step", "any delta"}, "each state was met"
