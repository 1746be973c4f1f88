"""The live widget of a cell: it follows the requests by itself, and a static bundle takes its place at the end."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from yaie_widgets import mode
from yaie_widgets.live.twin import twin_bundle

from .completion import Completion
from .display import BYTES_PER_SECOND, Handle, NoView
from .feed import RunFeed
from .render import Bundle, bundle, live_bundle, table
from .run import Run

if TYPE_CHECKING:
    from yaie_widgets import LiveGeneration

WIDGET = "application/vnd.jupyter.widget-view+json"
RENEW_S = 5.0
"""How often the text so far is put beside the widget, for a notebook that is saved before the end."""


def live() -> bool:
    """Whether cells show the widget: it is installed, and nobody asked for text."""
    return _installed() and not mode.text_mode()


@cache
def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("anywidget", "ipywidgets"))


class WidgetView(NoView):
    """One request, or the choices of one. The cell only waits: the widget takes what it shows from the request."""

    def __init__(self, handle: Handle, background: bool) -> None:
        from yaie_widgets import LiveGeneration

        self._make = LiveGeneration
        self._place = _Place(handle, background)

    def open(self, run: Run) -> None:
        """Show the widget."""
        feeds = [RunFeed(run, index) for index in range(run.params.n)]
        self._place.open(self._make(feeds, title=run.request_id if len(feeds) > 1 else "", noun="choice"))

    def turn(self, run: Run) -> None:
        """Keep the text so far."""
        self._place.renew([run])

    def finish(self, completions: Sequence[Completion]) -> None:
        """Put the static form in its place."""
        self._place.finish(bundle(completions))


class WidgetBatchView:
    """Many requests, one row each."""

    def __init__(self, handle: Handle, background: bool) -> None:
        from yaie_widgets import LiveGeneration

        self._make = LiveGeneration
        self._place = _Place(handle, background)
        self._widget: LiveGeneration | None = None
        self._shown = 0

    def open(self, total: int, stop: Callable[[], None]) -> None:
        """Show the widget, with no request yet."""
        self._widget = self._make(title="Batch", noun="request", total=total, on_stop=stop)
        self._place.open(self._widget)

    def progress(self, runs: Sequence[Run], total: int) -> None:
        """Give it the requests that were sent since the last time; how they go on it sees itself."""
        new, self._shown = runs[self._shown :], len(runs)
        if new and self._widget is not None:
            self._widget.add([RunFeed(run, index) for run in new for index in range(run.params.n)])
        self._place.renew(runs)

    def ended(self, completions: Sequence[Completion]) -> None:
        """The widget has seen it."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Put the static table in its place."""
        self._place.finish(table(completions))


class _Place:
    """The widget, and in a display after it the text so far, which the widget hides: a notebook that is saved now shows
    it where no kernel is. At the end the static form replaces the widget, and the second display is empty. A cell that
    waits has the second only when it takes long. One in the background has it from the start: some kernels put the
    first display of its thread into the newest cell."""

    def __init__(self, handle: Handle, background: bool) -> None:
        self._handle, self._background = handle, background
        self._beside: Handle | None = None
        self._widget: LiveGeneration | None = None
        self._due = 0.0

    def open(self, widget: LiveGeneration) -> None:
        """Show the widget."""
        self._widget = widget
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        self._handle.update({"text/plain": repr(widget), WIDGET: view})
        if self._background:
            self.renew([])
        self._due = time.monotonic() + RENEW_S

    def renew(self, runs: Sequence[Run]) -> None:
        """Keep the text so far, every few seconds; the longer it is, the rarer."""
        now = time.monotonic()
        if self._widget is None or now < self._due:
            return
        texts = [run.text(index) for run in runs for index in range(run.params.n)]
        self._due = now + max(RENEW_S, sum(map(len, texts)) * 2 / BYTES_PER_SECOND)
        self._beside = self._beside or self._handle.another()
        # Plain text is nothing but the text: what is shown only ever grows into the final one.
        twin = {**live_bundle(texts, "generating: the text so far"), "text/plain": live_bundle(texts)["text/plain"]}
        self._beside.update(twin_bundle(self._widget.key, twin))

    def finish(self, final: Bundle) -> None:
        """Put the static form in its place."""
        if self._beside is not None:
            self._beside.update({"text/plain": "", "text/html": ""})  # first: it would hide the static form
        self._handle.update(final)
        if self._widget is not None:
            self._widget.end(final)
