"""The engine's figures as a drawing: totals, and each recorded step on one axis. The static twin of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from yaie_engine.errors import RequestError

from .dashboard_model import DashboardView, Recording, dashboard_view
from .dashboard_plot import GAP_WORDS, StripPlot, grouped
from .dashboard_strips import STRIPS, Strip, engine_words, total_words
from .figures import count
from .mode import static_mode
from .picture import Picture
from .safe_text import pad, shorten
from .shapes import Canvas, Element, fitted, text_width
from .timeline_plot import LOST_ROLES, PAD, WIDTH
from .timeline_text import EMPTY_WORDS

DashboardFormat = Literal["svg", "text"]
TITLE = "Engine"
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 60


@dataclass(frozen=True, eq=False, repr=False)
class Dashboard(Picture):
    """Drawn when first asked. `timed` drawings give measured times and memory; without, equal runs give equal bytes."""

    view: DashboardView
    format: DashboardFormat = "svg"
    timed: bool = True

    @cached_property
    def title(self) -> str:
        """State and steps, in one line."""
        steps = self.view.steps
        if not steps:
            return f"{self.view.engine.get('state', '')} · no step recorded"
        first, last = count(steps[0].step), count(steps[-1].step)
        window = f"step {last}" if len(steps) == 1 else f"steps {first} to {last}"
        return f"{self.view.engine.get('state', '')} · {window}"

    @cached_property
    def text(self) -> str:
        """For a terminal; the same figures as the picture."""
        return "\n".join(line.rstrip() for line in self._lines())

    @property
    def strips(self) -> list[Strip]:
        """Those that are shown."""
        return [strip for strip in STRIPS if self.timed or not strip.timed]

    @property
    def totals(self) -> list[tuple[str, str]]:
        """The row of totals; memory is measured, like times."""
        return [words for words in total_words(self.view) if self.timed or words[0] != "Memory"]

    @cached_property
    def _drawn(self) -> Element:
        canvas = Canvas(WIDTH, f"{TITLE}, {self.title}")
        canvas.text(PAD, 23, TITLE, 13, bold=True)
        canvas.text(WIDTH - PAD, 23, self.title, 12, "ink2", end=True)
        room = WIDTH - 106 - text_width(self.title, 12)
        canvas.text(72, 23, fitted(engine_words(self.view), 12, room), 12, "ink2")
        canvas.path(f"M0,36.5H{WIDTH:g}", stroke="line")
        x = PAD
        for name, figure in self.totals:
            canvas.text(x, 53, name, 11, "ink2")
            canvas.text(x, 71, figure, 12)
            x += (WIDTH - 2 * PAD) / len(self.totals)
        canvas.path(f"M0,82.5H{WIDTH:g}", stroke="line")
        if not self.view.steps:
            canvas.text(PAD, 106, EMPTY_WORDS, 12, "ink2")
            return canvas.finish(124)
        plot = StripPlot(canvas, self.view, 84, self.timed)
        plot.draw()
        _legend(canvas, plot.bottom + 36, plot.gaps, swaps=self.view.totals.swaps > 0)
        return canvas.finish(plot.bottom + 50)

    def _lines(self) -> Iterator[str]:
        yield f"{TITLE}   {shorten(engine_words(self.view), 80)}   {self.title}"
        if not self.view.steps:
            yield EMPTY_WORDS
            return
        yield "  " + " · ".join(f"{name.lower()} {figure}" for name, figure in self.totals)
        for strip in self.strips:
            value, more = strip.words(self.view, self.view.steps[-1])
            said = f"{value}, {more}" if more else value
            yield f"  {pad(strip.title.lower(), 16)}{self._spark(strip)}  {said}; {strip.edge(self.view)}"

    def _spark(self, strip: Strip) -> str:
        """A sign for each column of steps: the most in it, on the scale of the strip."""
        top = strip.top(self.view) or 1
        columns = grouped(self.view.steps, len(self.view.steps), _SPARK_COLUMNS)
        levels = (max(strip.height(step) for step in steps) / top for steps in columns)
        return "".join(_SPARKS[min(7, int(level * 8))] for level in levels)


def draw_dashboard(recording: Recording, *, format: str = "svg") -> Dashboard:
    """Draw the figures of a recording; `engine` in it may hold the process's `memory` in bytes.

    Raises:
        RequestError: the format is none.
    """
    if format not in get_args(DashboardFormat):
        raise RequestError(f"format is {format!r}: use one of {', '.join(get_args(DashboardFormat))}")
    return Dashboard(dashboard_view(recording), format, timed=not static_mode())  # type: ignore[arg-type]


def _legend(canvas: Canvas, y: float, gaps: bool, swaps: bool) -> None:
    """One line: each mark with its word. Swapped requests have one where there are any."""
    canvas.cross(PAD + 5, y, 3, "lost")
    canvas.text(PAD + 16, y + 4, "blocks evicted", 11, "ink2")
    x = PAD + 16 + text_width("blocks evicted", 11) + 14
    for state, role in LOST_ROLES.items():
        if state != "swapped" or swaps:
            canvas.hatch(x, y - 4, 10, 8, role)
            canvas.text(x + 16, y + 4, f"request {state}", 11, "ink2")
            x += 16 + text_width(f"request {state}", 11) + 14
    canvas.path(f"M{x:g},{y:g}h14", stroke="edge", dash="2 3")
    canvas.text(x + 20, y + 4, "limit", 11, "ink2")
    if gaps:
        canvas.text(x + 20 + text_width("limit", 11) + 14, y + 4, GAP_WORDS, 11, "ink2")
