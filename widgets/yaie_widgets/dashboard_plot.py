"""The strips of the dashboard, drawn: one axis of steps, events above it, values at the newest step beside it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from .dashboard_model import DashboardView, StepFigures
from .dashboard_strips import STRIPS, Part, Strip
from .figures import count, counted
from .shapes import Canvas, text_width
from .timeline_plot import LEFT, PAD, PLOT, WIDTH

_FEWEST = 12
_HIGH, _BETWEEN = 40.0, 14.0
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TICK_ROOM, _MARK_ROOM = 52, 10
_THIN = 3.0
GAP_WORDS = "gap in a bar: least of its steps, or cut off"


def slots_for(steps: int) -> int:
    """Room for steps on the axis, which ends with the newest one; very few steps do not fill it."""
    return max(_FEWEST, steps)


def grouped(steps: Sequence[StepFigures], slots: int, width: float) -> list[Sequence[StepFigures]]:
    """Steps by the column that draws them: one each, or several where there are more steps than pixels."""
    each = max(1, ceil(slots / width))
    return [steps[at : at + each] for at in range(0, len(steps), each)]


class StripPlot:
    """Draws onto a canvas from `top` down; `bottom` is where the strips end."""

    def __init__(self, canvas: Canvas, view: DashboardView, top: float, timed: bool) -> None:
        self.canvas, self.view = canvas, view
        self.strips = [strip for strip in STRIPS if timed or not strip.timed]
        self.rail, self.first = top + 13, top + 30
        self.bottom = self.floor(len(self.strips) - 1)
        self.slot = PLOT / slots_for(len(view.steps))
        self.columns = grouped(view.steps, slots_for(len(view.steps)), PLOT)
        self.column = self.slot * max(map(len, self.columns), default=1)
        self.gaps = False  # whether a bar has a gap that the legend must explain

    def floor(self, number: int) -> float:
        """The baseline of a strip."""
        return self.first + number * (_HIGH + _BETWEEN) + _HIGH

    def draw(self) -> None:
        """All of it, from back to front."""
        self._axis()
        self._events()
        for number, strip in enumerate(self.strips):
            self._strip(strip, self.floor(number))
        x = LEFT + (len(self.view.steps) - 0.5) * self.slot
        self.canvas.path(f"M{x:.1f},{self.rail - 8:g}V{self.bottom:g}", stroke="ink", width=1.5)

    def _axis(self) -> None:
        self.canvas.text(PAD, self.bottom + 15, "Step", 11, "ink2")
        every = next((tick for tick in _TICKS if tick * self.slot >= _TICK_ROOM), 2000)
        for at, step in enumerate(self.view.steps):
            if step.step % every == 0 or len(self.view.steps) == 1:
                x = LEFT + (at + 0.5) * self.slot
                self.canvas.path(f"M{x:.1f},{self.first - 6:g}V{self.bottom:g}", stroke="line")
                self.canvas.centred(x, self.bottom + 15, count(step.step), 11, "ink2")

    def _events(self) -> None:
        """One mark for the steps that share its room."""
        self.canvas.text(PAD, self.rail + 4, "Events", 11, "ink2")
        room = max(1, ceil(_MARK_ROOM / self.slot))
        for at in range(0, len(self.view.steps), room):
            steps = self.view.steps[at : at + room]
            preempted, swapped = sum(step.preempted for step in steps), sum(step.swapped for step in steps)
            evicted = sum(step.evicted for step in steps)
            x = LEFT + (at + len(steps) / 2) * self.slot
            where = f"step {count(steps[0].step)}"
            where += f" to {count(steps[-1].step)}" if len(steps) > 1 else ""
            lost = [f"{counted(preempted, 'request')} preempted"] if preempted else []
            lost += [f"{counted(swapped, 'request')} swapped"] if swapped else []
            said = f"{where}: {', '.join([*lost, counted(evicted, 'block') + ' evicted'])}"
            if lost:
                role = "lost" if preempted else "swapped"
                self.canvas.path(f"M{x:.1f},{self.first - 9:g}V{self.bottom:g}", stroke=role, dash="1 2")
                self.canvas.hatch(x - 4, self.rail - 4, 8, 8, role, said)
            elif evicted:
                self.canvas.cross(x, self.rail, 3, "lost", said)

    def _strip(self, strip: Strip, floor: float) -> None:
        canvas, top = self.canvas, strip.top(self.view)
        canvas.text(PAD, floor - 25, strip.title, 12)
        self._legend(strip, floor - 10)
        canvas.path(f"M{LEFT:g},{floor + 0.5:g}H{LEFT + PLOT:g}", stroke="line")
        if strip.limit:
            canvas.path(f"M{LEFT:g},{floor - _HIGH + 0.5:g}H{LEFT + PLOT:g}", stroke="edge", dash="2 3")
        if strip.stacked:
            self._stack(strip, floor, top)
        else:
            for part in strip.parts:
                self._line(part, floor, top)
        value, more = strip.words(self.view, self.view.steps[-1])
        canvas.text(WIDTH - PAD, floor - 25, value, 12, end=True)
        canvas.text(WIDTH - PAD, floor - 10, more, 10, "ink2", end=True)
        words = strip.edge(self.view)
        canvas.rect(LEFT, floor - _HIGH - 11.5, text_width(words, 10) + 2, 10, "bg")
        canvas.text(LEFT, floor - _HIGH - 3, words, 10, "ink2")

    def _legend(self, strip: Strip, baseline: float) -> None:
        x = PAD
        for part in strip.parts:
            if part.look == "bar":
                high = 4 if part.role == "decode" else 8
                self.canvas.rect(x, baseline - 3.5 - high / 2, 7, high, part.role)
            else:
                dash = "2 2" if part.look == "dots" else ""
                self.canvas.path(f"M{x:g},{baseline - 3.5:g}h9", stroke=part.role, width=1.6, dash=dash)
            x += 10 if part.look == "bar" else 12
            self.canvas.text(x, baseline, part.word, 10, "ink2")
            x += text_width(part.word, 10) + 5

    def _stack(self, strip: Strip, floor: float, top: float) -> None:
        """Bars of the step with the most in each column. A gap in it marks the least where it holds several steps, and
        what is higher than the strip."""
        unit, gap = _HIGH / top if top else 0.0, 1.0 if self.column > _THIN else 0.0
        paths = {part.role: "" for part in strip.parts}
        gaps = ""
        for number, steps in enumerate(self.columns):
            x, width = LEFT + number * self.column + gap / 2, self.column - gap
            tallest = max(steps, key=strip.height)
            y = floor
            for part in strip.parts:
                high = min(part.value(tallest) * unit, _HIGH - (floor - y))
                if high > 0:
                    paths[part.role] += f"M{x:.1f},{y:.2f}v{-high:.2f}h{width:.2f}v{high:.2f}z"
                y -= high
            if len(steps) > 1:
                low = floor - strip.height(min(steps, key=strip.height)) * unit
                gaps += f"M{x:.1f},{low:.2f}h{width:.2f}"
            if strip.height(tallest) > top:
                gaps += self._cut(x, floor, width)
        for role, path in paths.items():
            if path:
                self.canvas.path(path, role)
        self._draw_gaps(gaps)

    def _line(self, part: Part, floor: float, top: float) -> None:
        """Steps, never curves; from least to most where a column holds several."""
        unit, path, gaps = _HIGH / top if top else 0.0, "", ""
        for number, steps in enumerate(self.columns):
            values = [part.value(step) for step in steps]
            x, width = LEFT + number * self.column, self.column
            low, high = (floor - min(value, top) * unit for value in (min(values), max(values)))
            path += f"{'L' if path else 'M'}{x:.1f},{low:.2f}"
            path += f"V{high:.2f}V{low:.2f}" if len(values) > 1 else ""
            path += f"h{width:.2f}"
            gaps += self._cut(x, floor, width) if max(values) > top else ""
        self.canvas.path(path, stroke=part.role, width=1.6, dash="2 2" if part.look == "dots" else "")
        self._draw_gaps(gaps)

    def _draw_gaps(self, path: str) -> None:
        if path:
            self.gaps = True
            self.canvas.path(path, stroke="bg", width=1.2)

    @staticmethod
    def _cut(x: float, floor: float, width: float) -> str:
        return f"M{x:.1f},{floor - _HIGH + 4:.2f}h{width:.2f}"
