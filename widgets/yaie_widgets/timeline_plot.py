"""The upper part of the timeline drawing: step axis, events, tokens per step, and a row of bars for each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .figures import count, counted
from .safe_text import shorten
from .shapes import Canvas, fitted, text_width
from .timeline_model import Lost, Span, TimelineRow, TimelineStep, TimelineView

WIDTH = 900.0
LEFT, RIGHT, PAD = 150.0, 98.0, 12.0
PLOT = WIDTH - LEFT - RIGHT
_RAIL, _STRIP_TOP, _STRIP = 66.0, 76.0, 40.0
_ROWS_TOP = _STRIP_TOP + _STRIP + 12
_GAP = 0.8
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_TICK_ROOM = 52
_FEWEST = 12
LOST_ROLES: Final[dict[Lost, str]] = {"preempted": "lost", "swapped": "swapped"}
"""Colour of the strokes by which a place that was lost is drawn."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Heights of a row and of its bars, by how many rows there are."""

    row: float
    chunk: float
    decode: float
    waiting: float
    hatch: float
    mark: float
    label: int

    @classmethod
    def of(cls, rows: int) -> Scale:
        if rows <= 12:
            return cls(20, 13, 5, 4, 9, 4, 12)
        if rows <= 60:
            return cls(12, 9, 4, 3, 7, 3, 10)
        return cls(2, 2, 1, 1, 2, 0, 0)


class Plot:
    """Draws onto a canvas; `bottom` is where the rows end."""

    def __init__(self, canvas: Canvas, view: TimelineView) -> None:
        self.canvas, self.view = canvas, view
        self.scale = Scale.of(len(view.rows))
        self.column = PLOT / max(_FEWEST, len(view.steps))
        names = (text_width(shorten(row.label, 16), self.scale.label) for row in view.rows)
        self.names = min(max(names, default=0), LEFT - PAD - 8)
        self.bottom = _ROWS_TOP + self.scale.row * len(view.rows)
        self.swaps = any(span.kind == "swapped" for row in view.rows for span in row.spans)

    def x(self, column: float) -> float:
        """The left edge of a column."""
        return LEFT + column * self.column

    def draw(self) -> None:
        """All of it, from back to front."""
        last = len(self.view.steps) - 1
        self.canvas.rect(self.x(last), 56, max(self.column, 1), self.bottom - 56, "sunk")
        self._axis()
        self._events()
        self._strip()
        for number, row in enumerate(self.view.rows):
            self._row(row, _ROWS_TOP + number * self.scale.row)

    def _axis(self) -> None:
        self.canvas.text(PAD, 52, "Request", 11, "ink2")
        if self.scale.label:
            self.canvas.text(WIDTH - PAD, 52, "Output", 11, "ink2", end=True)
        else:  # rows too low for names
            self.canvas.text(PAD, _ROWS_TOP + 10, f"{count(len(self.view.rows))} rows", 11, "ink2")
            self.canvas.text(PAD, _ROWS_TOP + 26, "in order of arrival", 11, "ink2")
        every = next((tick for tick in _TICKS if tick * self.column >= _TICK_ROOM), 1000)
        for column, step in enumerate(self.view.steps):
            if step.record.step % every == 0 or len(self.view.steps) == 1:
                middle = self.x(column + 0.5)
                self.canvas.path(f"M{middle:.1f},56V{self.bottom:.1f}", stroke="line")
                self.canvas.centred(middle, 52, count(step.record.step), 11, "ink2")

    def _events(self) -> None:
        self.canvas.text(PAD, _RAIL + 4, "Events", 11, "ink2")
        for column, step in enumerate(self.view.steps):
            middle, where = self.x(column + 0.5), f"step {count(step.record.step)}"
            evicted = len(step.record.blocks.evicted)
            if step.lost:
                words = [_lost_words(step, state) for state in LOST_ROLES if step.lost_as(state)]
                words += [f"{counted(evicted, 'block')} evicted"] if evicted else []
                role = LOST_ROLES["preempted" if step.lost_as("preempted") else "swapped"]
                self.canvas.hatch(middle - 4, _RAIL - 4, 8, 8, role, f"{where}: {', '.join(words)}")
            elif evicted:
                self.canvas.cross(middle, _RAIL, 3, "lost", f"{where}: {counted(evicted, 'block')} evicted")

    def _strip(self) -> None:
        steps, budget = self.view.steps, self.view.budget
        most = max(step.tokens for step in steps)
        top = max(most, budget or 0)
        floor = _STRIP_TOP + _STRIP
        self.canvas.text(PAD, _STRIP_TOP + 12, "Tokens per step", 11, "ink2")
        self.canvas.text(PAD, _STRIP_TOP + 28, f"largest {count(most)}", 11, "ink2")
        self.canvas.text(WIDTH - PAD, _STRIP_TOP + 12, f"{count(steps[-1].tokens)} tok", 12, end=True)
        if budget:
            self.canvas.text(WIDTH - PAD, _STRIP_TOP + 28, f"of {count(budget)}", 11, "ink2", end=True)
        if top == budget:
            self.canvas.path(f"M{LEFT:g},{_STRIP_TOP:g}H{LEFT + PLOT:g}", stroke="edge", dash="2 3")
        self.canvas.path(f"M{LEFT:g},{floor:g}H{LEFT + PLOT:g}", stroke="line")
        for column, step in enumerate(steps):
            self._bar(column, step, floor, _STRIP / max(top, 1))

    def _bar(self, column: int, step: TimelineStep, floor: float, unit: float) -> None:
        record = step.record
        parts = ("decode", record.num_decode_tokens), ("prefill", record.num_prefill_tokens)
        for kind, tokens in parts:
            if tokens:
                high = max(tokens * unit, 1.5)
                title = f"step {count(record.step)}: {count(step.tokens)} tokens, {count(tokens)} {kind}"
                self.canvas.rect(self.x(column), floor - high, self._wide(1), high, kind, title=title)
                floor -= high

    def _wide(self, columns: int) -> float:
        return max(columns * self.column - min(_GAP, self.column / 4), 0.6)

    def _row(self, row: TimelineRow, top: float) -> None:
        middle = top + self.scale.row / 2
        if self.scale.label:
            self._labels(row, middle)
        for span in row.spans:
            self._span(row, span, middle)
        if row.end is not None and self.scale.mark:
            self._mark(row.end.reason, self.x(row.end.column) + self.scale.mark + 1, middle)

    def _labels(self, row: TimelineRow, middle: float) -> None:
        size, baseline = self.scale.label, middle + self.scale.label * 0.35
        name = fitted(shorten(row.label, 16), size, LEFT - PAD - 8)
        self.canvas.text(PAD, baseline, name, size, title=_row_title(row))
        start = PAD + self.names + 8
        if self.scale.row >= 20 and LEFT - start > 40:
            self.canvas.text(start, baseline, fitted(row.text.lstrip(), 11, LEFT - start - 6), 11, "ink2")
        output = "—" if row.num_output_tokens is None else f"{count(row.num_output_tokens)} tok"
        self.canvas.text(WIDTH - PAD, baseline, output, size, end=True)

    def _span(self, row: TimelineRow, span: Span, middle: float) -> None:
        canvas, scale = self.canvas, self.scale
        x, width = self.x(span.first), self._wide(span.last - span.first + 1)
        title = self._title(row, span)
        if span.kind == "prefill":
            self._chunk(span, x, width, middle - scale.chunk / 2, title)
        elif span.kind == "decode":
            canvas.rect(x, middle - scale.decode / 2, width, scale.decode, "decode", title=title)
        elif span.kind == "paused":
            canvas.rect(x, middle - 0.5, width, 1, "edge", title=title)
        elif scale.mark == 0:  # rows of 2 px: no room for an outline or strokes
            role, high = {"preempted": ("lost", 2.0), "swapped": ("swapped", 1.2)}.get(span.kind, ("edge", 0.6))
            canvas.rect(x, middle - high / 2, width, high, role, title=title)
        elif span.kind == "preempted" or span.kind == "swapped":
            high = scale.hatch
            canvas.hatch(x + 0.5, middle - high / 2, max(width - 1, 1), high, LOST_ROLES[span.kind], title)
        else:
            high = scale.waiting
            canvas.rect(x + 0.5, middle - high / 2, max(width - 1, 1), high, "bg", "edge", title)

    def _chunk(self, span: Span, x: float, width: float, y: float, title: str) -> None:
        """The cached tokens first, then the computed ones, in proportion but never too thin to see."""
        share = span.cached / (span.cached + span.tokens)
        cached = min(max(width * share, min(3.0, width / 2)), width * 0.6) if span.cached else 0.0
        if cached:
            self.canvas.rect(x, y, cached, self.scale.chunk, "cached", title=title)
        gap = min(0.6, width / 8) if cached else 0.0
        self.canvas.rect(x + cached + gap, y, width - cached - gap, self.scale.chunk, "prefill", title=title)

    def _mark(self, reason: str, x: float, middle: float) -> None:
        draw_mark(self.canvas, reason, x, middle, self.scale.mark)

    def _title(self, row: TimelineRow, span: Span) -> str:
        """The tooltip of a bar."""
        steps = self.view.steps[span.first].record.step, self.view.steps[span.last].record.step
        where = f"step {count(steps[0])}" if steps[0] == steps[1] else f"steps {count(steps[0])} to {count(steps[1])}"
        words = [f"{shorten(row.label, 40)}: {span.kind}, {where}"]
        if span.kind in ("prefill", "decode"):
            words.append(counted(span.tokens, "token"))
        if span.cached:
            words.append(f"{counted(span.cached, 'token')} from the cache")
        return ", ".join(words)


def _lost_words(step: TimelineStep, state: Lost) -> str:
    """`2 preempted (req-3, req-4)`."""
    labels = step.lost_as(state)
    return f"{count(len(labels))} {state} ({', '.join(shorten(label, 24) for label in labels[:4])})"


def _row_title(row: TimelineRow) -> str:
    """The tooltip of a name: all of it, and more of the text than has room."""
    figures = [f"{shorten(row.label, 80)}: {row.state}"]
    for number, words in ((row.num_prompt_tokens, "prompt token"), (row.num_output_tokens, "output token")):
        figures += [counted(number, words)] if number is not None else []
    return ", ".join(figures) + (f": {shorten(row.text, 200)}" if row.text else "")


def draw_mark(canvas: Canvas, reason: str, x: float, y: float, radius: float) -> None:
    """How a request ended: a disc for stop, a square for length, a cross for cancelled or failed."""
    if reason == "length":
        canvas.rect(x - radius, y - radius, 2 * radius, 2 * radius, "ink")
    elif reason in ("cancelled", "failed"):
        canvas.cross(x, y, radius, "ink")
    elif reason == "stop":
        canvas.disc(x, y, radius, "ink")
    else:  # ended, and nothing remembers why
        canvas.disc(x, y, radius - 0.5, "bg", "ink")
