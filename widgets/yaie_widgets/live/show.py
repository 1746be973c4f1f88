"""A live view in a cell, with the drawing that stands in for it where no kernel is."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any

from .step_view import StepView
from .twin import Bundle, TwinKeeper, twin_bundle
from .view import LiveView

_CELLS: dict[str, tuple[str, list[weakref.ref[LiveView]]]] = {}  # cell -> the run that made them, its views
_KEEPERS: weakref.WeakKeyDictionary[Any, dict[Any, weakref.ref[StepView]]] = weakref.WeakKeyDictionary()


def show(view: LiveView, twin: Bundle, draw: Callable[[], Bundle] | None = None) -> None:
    """Display the widget and, hidden while the widget lives, its static twin.

    `draw` makes the twin anew from the view's source, so that what is saved is what was last seen. Views that an
    earlier run of the same cell showed are closed.
    """
    ipython: Any = importlib.import_module("IPython")
    display: Any = importlib.import_module("IPython.display").display
    _replace(view, *_cell_and_run(ipython.get_ipython()))
    display(view)
    handle = display(twin_bundle(view.key, twin), raw=True, display_id=True)
    if draw is not None and handle is not None and isinstance(view, StepView):
        source = view.source
        view.keep_twin(
            TwinKeeper(
                source.step, draw, lambda drawn: handle.update(twin_bundle(view.key, drawn), raw=True), source.alive
            )
        )
        _only_keeper(view)


def _cell_and_run(shell: Any) -> tuple[str, str]:
    """The cell that runs and the message that runs it; a front end may name neither."""
    parent: Any = getattr(shell, "get_parent", dict)() or {}
    cell, run = parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id")
    return str(cell or ""), str(run or "")


def _replace(view: LiveView, cell: str, run: str) -> None:
    if not cell:
        return
    known, views = _CELLS.get(cell, (run, []))
    if known != run:
        for old in views:
            if (shown := old()) is not None:
                shown.close()
        views = []
    _CELLS[cell] = (run, [*views, weakref.ref(view)])


def _only_keeper(view: StepView) -> None:
    """Of equal views of one source, the newest has its twin drawn again; an older one keeps what it has."""
    keepers = _KEEPERS.setdefault(view.source, {})
    kind = (view.NAME, repr(view.options()))  # each widget has a class of its own
    before = keepers[kind]() if kind in keepers else None
    if before is not None:
        before.keep_twin(None)
    keepers[kind] = weakref.ref(view)
