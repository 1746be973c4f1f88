"""Counts and seconds as a server tells them: numbers in JSON have any size, and Python counts with truth values."""

from __future__ import annotations

MOST_ID = 2**31 - 1
MOST_BYTES = 2**63 - 1
MOST_STEPS = 2**53
"""What a page can count to."""
MOST_SECONDS = 1e9


def count(value: object, most: int = MOST_ID) -> int | None:
    """A number of things from 0 to `most`; None for what is none."""
    return value if type(value) is int and 0 <= value <= most else None


def seconds(value: object) -> float | None:
    """A time that something took; None for what is none, NaN and infinity included."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < MOST_SECONDS:
        return None
    return float(value)
