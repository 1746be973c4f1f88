"""Who is served first. A policy is a sort key over waiting sequences, smallest first. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable

from .sequence import Sequence

Policy = Callable[[Sequence], tuple[int, ...]]


def fcfs(seq: Sequence) -> tuple[int, ...]:
    """First come, first served within a priority; higher priorities first. A preempted sequence keeps its place."""
    return (-seq.priority, seq.seq_id)


POLICIES: dict[str, Policy] = {"fcfs": fcfs}
