"""The scheduler's steps as a drawing: who waited, computed, wrote or lost its place, and what the newest step did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from yaie_engine.errors import RequestError
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot
from yaie_engine.tape import Tape

from .mode import static_mode
from .picture import Picture
from .shapes import Canvas, Element, text_width
from .timeline_model import DEFAULT_STEPS, TimelineView, timeline_view
from .timeline_panel import HEIGHT, draw_panel
from .timeline_plot import LOST_ROLES, PAD, WIDTH, Plot, draw_mark
from .timeline_text import EMPTY_WORDS, more_words, timeline_text, window_words

TimelineFormat = Literal["svg", "text"]
MAX_STEPS = 600
NAME = "timeline"
TITLE = "Scheduler timeline"


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(Picture):
    """Drawn when first asked. `timed` drawings give measured times; without them equal runs give equal bytes."""

    view: TimelineView
    format: TimelineFormat = "svg"
    timed: bool = True
    name: str = NAME

    @cached_property
    def title(self) -> str:
        """What is shown, in one line."""
        return window_words(self.view, self.timed) if self.view.steps else EMPTY_WORDS

    @cached_property
    def text(self) -> str:
        """For a terminal; the same figures as the picture."""
        return timeline_text(self.view, self.timed)

    @cached_property
    def _drawn(self) -> Element:
        canvas = Canvas(WIDTH, f"{TITLE}, {self.title}")
        canvas.text(PAD, 23, TITLE, 13, bold=True)
        if not self.view.steps:
            canvas.path(f"M0,36.5H{WIDTH:g}", stroke="line")
            canvas.text(PAD, 62, EMPTY_WORDS, 12, "ink2")
            return canvas.finish(84)
        canvas.text(WIDTH - PAD, 23, self.title, 12, "ink2", end=True)
        canvas.path(f"M0,36.5H{WIDTH:g}", stroke="line")
        plot = Plot(canvas, self.view)
        plot.draw()
        y = plot.bottom + 8
        if more_words(self.view):
            canvas.text(PAD, y + 12, more_words(self.view), 11, "ink2")
            y += 18
        _legend(canvas, y + 16, marks=plot.scale.mark > 0, swaps=plot.swaps)
        draw_panel(canvas, self.view, y + 32, self.timed)
        return canvas.finish(y + 32 + HEIGHT)


def draw_timeline(
    snapshot: EngineSnapshot,
    tape: Tape,
    history: Sequence[RequestRecord] = (),
    *,
    steps: int = DEFAULT_STEPS,
    first: int | None = None,
    request: str | None = None,
    budget: int | None = None,
    format: str = "svg",
    decode: Callable[[Sequence[int]], str] | None = None,
) -> Timeline:
    """Draw the last `steps` recorded steps, or those from step `first` on; `request` draws its rows alone.

    Take the snapshot first, then the tape, then the history. `budget` is the most tokens of a step; `decode` gives a
    text to requests that came as token ids.

    Raises:
        RequestError: a value is out of range, or the steps shown know no such request.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise RequestError(f"steps is {steps}: use 1 to {MAX_STEPS}")
    if format not in get_args(TimelineFormat):
        raise RequestError(f"format is {format!r}: use one of {', '.join(get_args(TimelineFormat))}")
    view = timeline_view(
        snapshot, tape, history, steps=steps, first=first, request=request, budget=budget, decode=decode
    )
    return Timeline(view, format, timed=not static_mode())  # type: ignore[arg-type]


def _legend(canvas: Canvas, y: float, marks: bool, swaps: bool) -> None:
    """One line: each mark with its word. What was swapped has one where there is any."""
    x, gap = PAD, 9 if swaps else 14
    bars = (("waiting", "bg", 4.0), ("from cache", "cached", 10.0), ("prefill chunk", "prefill", 10.0))
    lost = [(state, role, 8.0) for state, role in LOST_ROLES.items() if state != "swapped" or swaps]
    for word, role, high in (*bars, ("decode", "decode", 5.0), *lost, ("paused", "edge", 1.0)):
        if word in LOST_ROLES:
            canvas.hatch(x, y - high / 2, 14, high, role)
        else:
            canvas.rect(x, y - high / 2, 14, high, role, "edge" if role == "bg" else "")
        canvas.text(x + 19, y + 4, word, 11, "ink2")
        x += 19 + text_width(word, 11) + gap
    ends = (("stop", "stop"), ("length", "length"), ("cancelled or failed", "failed"))
    for word, reason in ends if marks else ():
        draw_mark(canvas, reason, x + 5, y, 4)
        canvas.text(x + 14, y + 4, word, 11, "ink2")
        x += 14 + text_width(word, 11) + gap
    canvas.cross(x + 5, y, 3, "lost")
    canvas.text(x + 14, y + 4, "evicted", 11, "ink2")
