"""Row 5: errors at each place of a step."""

from __future__ import annotations

from tests.fault.faults import rounds

from .figure import Figure


def errors(size: int, seed: int) -> Figure:
    """`size` rounds, each fault point with each kind of error in turn."""
    found = rounds(size, seed)
    who = ", ".join(f"{name} in {count}" for name, count in found.rounds.most_common())
    return Figure(f"{size} rounds of 5 requests", f"failed: {who}", tuple(found.wrong))
