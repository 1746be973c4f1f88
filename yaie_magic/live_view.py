"""The live widget of a cell: it follows the requests by itself, and a static bundle takes its place at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from yaie_widgets import mode

from .completion import Completion
from .display import Handle, NoView
from .feed import RunFeed
from .render import Bundle, bundle, live_bundle, table
from .run import Run

if TYPE_CHECKING:
    from yaie_widgets import LiveGeneration

WIDGET = "application/vnd.jupyter.widget-view+json"


def live() -> bool:
    """Whether cells show the widget: it is installed, and nobody asked for text."""
    return _installed() and not mode.text_mode()


@cache
def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("anywidget", "ipywidgets"))


class WidgetView(NoView):
    """One request, or the choices of one. The cell only waits: the widget takes what it shows from the request."""

    def __init__(self, handle: Handle) -> None:
        from yaie_widgets import LiveGeneration

        self._make = LiveGeneration
        self._handle = handle
        self._widget: LiveGeneration | None = None

    def open(self, run: Run) -> None:
        """Show the widget."""
        feeds = [RunFeed(run, index) for index in range(run.params.n)]
        self._widget = self._make(feeds, title=run.request_id if len(feeds) > 1 else "", noun="choice")
        self._handle.update(_widget_bundle(self._widget))

    def finish(self, completions: Sequence[Completion]) -> None:
        """Put the static form in its place."""
        self._handle.update(bundle(completions))
        if self._widget is not None:
            self._widget.end()


class WidgetBatchView:
    """Many requests, one row each."""

    def __init__(self, handle: Handle) -> None:
        from yaie_widgets import LiveGeneration

        self._make = LiveGeneration
        self._handle = handle
        self._widget: LiveGeneration | None = None
        self._shown = 0

    def open(self, total: int, stop: Callable[[], None]) -> None:
        """Show the widget, with no request yet."""
        self._widget = self._make(title="Batch", noun="request", total=total, on_stop=stop)
        self._handle.update(_widget_bundle(self._widget))

    def progress(self, runs: Sequence[Run], total: int) -> None:
        """Give it the requests that were sent since the last time; how they go on it sees itself."""
        new, self._shown = runs[self._shown :], len(runs)
        if new and self._widget is not None:
            self._widget.add([RunFeed(run, index) for run in new for index in range(run.params.n)])

    def ended(self, completions: Sequence[Completion]) -> None:
        """The widget has seen it."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Put the static table in its place."""
        self._handle.update(table(completions))
        if self._widget is not None:
            self._widget.end()


def _widget_bundle(widget: LiveGeneration) -> Bundle:
    """A front end that has no widgets shows the line of text, and the result when it is there."""
    return {
        **live_bundle([], "generating; this front end shows the text when it is complete"),
        "text/plain": repr(widget),
        WIDGET: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id},
    }
