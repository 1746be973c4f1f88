"""What this engine loses at: every figure of every workload in which a peer is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from yaie_magic.bench.trial import FIGURES

from . import summary
from .peer import OURS, PEERS

NOISE = 1.02
"""Ratios closer to 1 are no loss and no gain."""


def losses(run: Mapping[str, Any]) -> Iterator[str]:
    """A line for each, by workload. Yardsticks and builds that are none for this CPU do not compete."""
    for workload in run["workloads"]:
        mine = summary.ours(workload)
        for row in workload["rows"] if mine is not None else ():
            if row["peer"] == OURS or not summary.usable(row) or summary.is_yardstick(row):
                continue
            if mine is None or not summary.is_native(summary.run_of(workload, run), row):
                continue
            for figure in FIGURES[workload["name"]]:
                ratio = summary.ratio(mine, row, figure).median
                worse = ratio if figure.less else 1 / ratio
                if worse > NOISE:
                    words = PEERS[row["peer"]].words if row["peer"] in PEERS else row["peer"]
                    yield f"- {workload['name']}, {figure.words}: {words} is {worse:.2f} times better"


def told(run: Mapping[str, Any]) -> list[str]:
    """The part of the page."""
    found = list(losses(run))
    if not found:
        return ["No peer is better in any figure of these workloads."]
    return ["What this engine loses at, by all figures (medians of ratios within a round):", "", *found]
