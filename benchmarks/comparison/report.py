"""A comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import losses, page


def table(run: Mapping[str, Any]) -> str:
    """The tables of the page, without what only a page needs."""
    lines = [page.heading(run, run["workloads"])]
    for workload in run["workloads"]:
        lines += ["", *page.table(workload, run)]
    return "\n".join([*lines, "", *losses.told(run), "", *page.peers(run), "", *page.agreements(run)])
