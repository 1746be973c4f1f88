"""The plot of a comparison: for each workload, how much faster or slower each peer is than this engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from yaie_widgets.shapes import Canvas, fitted
from yaie_widgets.svg import standalone

from . import summary
from .peer import OURS, PEERS

WIDTH, LEFT, RIGHT, PAD = 900.0, 300.0, 100.0, 16.0
ROW, BAR, GAP, TOP = 20.0, 12.0, 14.0, 64.0
FEWEST, MOST = 2.0, 32.0
Bar = tuple[str, float, str]


def draw(run: Mapping[str, Any]) -> str:
    """A stand-alone SVG. A bar to the right says how many times faster ours is, one to the left how many slower."""
    groups = [(f"{w['name']}: {w['words']} ({summary.headline(w).words})", bars(w, run)) for w in run["workloads"]]
    groups = [(title, found) for title, found in groups if found]
    widest = max((abs(math.log2(times)) for _, found in groups for _, times, _ in found), default=1.0)
    scale = (WIDTH - LEFT - RIGHT - 2 * PAD) / 2 / min(math.log2(MOST), max(math.log2(FEWEST), widest))
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    canvas = Canvas(WIDTH, "How many times faster this engine is than each peer, by workload")
    canvas.text(PAD, 26, "How many times faster this engine is", 15, bold=True)
    what = f"{run['model']['words']}, {run['dtype']}, {run['threads']} threads; logarithmic, bars end at {MOST:g} times"
    canvas.text(PAD, 46, what, 12, "ink2")
    y = TOP
    for title, found in groups:
        canvas.text(PAD, y + 14, fitted(title, 12, WIDTH - 2 * PAD), 12, bold=True)
        y += ROW
        for words, times, detail in found:
            _bar(canvas, y, middle, scale, words, times, detail)
            y += ROW
        y += GAP
    canvas.path(f"M{middle:g},{TOP:g}V{y:g}", stroke="edge")
    if not groups:
        canvas.text(PAD, y + 14, "no peer has figures", 12, "ink2")
        y += ROW
    return standalone(canvas.finish(y + PAD))


def bars(workload: Mapping[str, Any], run: Mapping[str, Any]) -> list[Bar]:
    """Each peer's words, how many times faster ours is by the figure the workload is about, and a detail."""
    mine, figure = summary.ours(workload), summary.headline(workload)
    if mine is None:
        return []
    found = []
    for row in workload["rows"]:
        if row["peer"] == OURS or not summary.usable(row) or summary.is_yardstick(row):
            continue
        if not summary.is_native(summary.run_of(workload, run), row):
            continue
        ratio = summary.ratio(mine, row, figure).median
        times = 1 / ratio if figure.less else ratio
        words = PEERS[row["peer"]].words if row["peer"] in PEERS else row["peer"]
        found.append((words, times, f"{figure.words}, {figure.unit}"))
    return found


def _bar(canvas: Canvas, y: float, middle: float, scale: float, words: str, times: float, detail: str) -> None:
    length = min(math.log2(MOST), max(-math.log2(MOST), math.log2(times))) * scale
    canvas.text(LEFT - 10, y + 12, fitted(words, 12, LEFT - PAD - 16), 12, "ink2", end=True)
    role = "cached" if times >= 1 else "lost"
    canvas.rect(
        min(middle, middle + length), y + 3, abs(length), BAR, role, title=f"{words}: {times:.2f} times, {detail}"
    )
    if length >= 0:
        canvas.text(middle + length + 6, y + 13, f"{times:.2f}", 12)
    else:
        canvas.text(middle + length - 6, y + 13, f"{times:.2f}", 12, end=True)
