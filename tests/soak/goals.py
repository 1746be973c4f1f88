"""Goals that are no gates, since they say more about the machine than about the program: what a run missed of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .result import Result
from .slope import TOLD


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure among the times and memory that a row prints, and the most that it should be."""

    row: int
    figure: re.Pattern[str]
    most: float
    words: str


GOALS = (
    Goal(8, re.compile(r"until the cell ended: [^;]*worst ([\d.]+) ms"), 1000, "ms until a cell ended"),
    Goal(9, re.compile(r"from the last line to the end: [^;]*worst ([\d.]+) ms"), 3000, "ms until a process ended"),
    Goal(14, re.compile(r"one alone afterwards ([\d.]+) s"), 2, "s for a request after the overload"),
    Goal(15, re.compile(r"the last unread one ended after ([\d.]+) s"), 30, "s until an unread request ended"),
    Goal(15, re.compile(r"([+-][\d.]+) MB a client"), 1, "MB a client"),
    Goal(17, re.compile(r"loop lag: [^;]*worst ([\d.]+) ms"), 100, "ms of loop lag"),
)
READERS, MIXED = 15, 24
OTHERS = re.compile(r"tokens/s of the others (\d+) alone, (\d+) beside")
LEAST = 90
"""Of 100 tokens a second, what the others should keep."""
SLOPE = re.compile(r"95 %: ([+-][\d.]+) to ([+-][\d.]+) \(")


def missed(one: Result) -> Iterator[str]:
    """A line for each."""
    for goal in GOALS:
        found = goal.figure.search(one.times) if goal.row == one.row else None
        if found and float(found[1]) > goal.most:
            yield f"Row {one.row}: {float(found[1]):g} {goal.words}; the goal is at most {goal.most:g}"
    if one.row == READERS and (found := OTHERS.search(one.times)):
        alone, beside = map(int, found.groups())
        if 100 * beside < LEAST * alone:
            yield (
                f"Row {one.row}: {beside} tokens/s of the others beside those clients, whose requests are computed "
                f"too, and {alone} alone; the goal is {LEAST} of 100"
            )
    if one.row == MIXED and one.times:
        yield from _slope(one)


def _slope(one: Result) -> Iterator[str]:
    found = SLOPE.search(one.times)
    low, high = map(float, found.groups()) if found else (float("-inf"), float("inf"))
    if low > TOLD:
        yield f"Row {one.row}: memory grew by at least {low:g} MB/h; the goal is at most {TOLD:g}"
    elif high > TOLD:
        yield f"Row {one.row} was too short to tell whether memory grows by less than {TOLD:g} MB/h, the goal"
