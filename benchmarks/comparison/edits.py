"""Edits depth by depth: how long this engine takes to its first token, and how long the edited suffix alone takes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import summary

YARDSTICK = "in place"


@dataclass(frozen=True, slots=True)
class Edit:
    """Medians over rounds of the edit at `depth` tokens, in ms; `ratio` is that of ours over the yardstick's within
    rounds."""

    depth: int
    ours: float
    suffix: float
    ratio: float


def by_depth(workload: Mapping[str, Any]) -> list[Edit]:
    """The shallowest first; none where this engine or the yardstick has no figures."""
    mine = summary.ours(workload)
    rows = (row for row in workload["rows"] if row["peer"] == YARDSTICK and summary.usable(row))
    theirs = next(rows, None)
    if mine is None or theirs is None:
        return []
    found: dict[int, list[tuple[float, float]]] = {}
    for a, b in zip(mine["repetitions"], theirs["repetitions"], strict=True):
        for (depth, ours), (_, suffix) in zip(a.get("edits", []), b.get("edits", []), strict=True):
            found.setdefault(depth, []).append((ours, suffix))
    return [_edit(depth, found[depth]) for depth in sorted(found)]


def _edit(depth: int, pairs: list[tuple[float, float]]) -> Edit:
    ours, suffix = zip(*pairs, strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    return Edit(depth, statistics.median(ours), statistics.median(suffix), ratio)


def table(workload: Mapping[str, Any]) -> list[str]:
    """A line for each depth; nothing where there is none."""
    found = by_depth(workload)
    if not found:
        return []
    worst = max(found, key=lambda each: each.ratio)
    head = (
        f"Edit by edit against the prefill of the edited suffix, its prefix in place: the mean of the ratios is "
        f"{statistics.fmean(each.ratio for each in found):.2f}, the largest {worst.ratio:.2f}, "
        f"{worst.depth:,} tokens deep."
    )
    rows = [f"| {each.depth:,} | {each.ours:.1f} | {each.suffix:.1f} | {each.ratio:.2f} |" for each in found]
    return ["", head, "", "| depth, tokens | ours: TTFT, ms | suffix alone, ms | ratio |", "|---|---|---|---|", *rows]
