"""A live view in a cell, with the drawing that stands in for it where no kernel is."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .step_view import StepView
from .twin import Bundle, TwinKeeper, twin_bundle
from .view import LiveView


def show(view: LiveView, twin: Bundle, draw: Callable[[], Bundle] | None = None) -> None:
    """Display the widget and, hidden while the widget lives, its static twin.

    `draw` makes the twin anew from the view's source, so that what is saved is what was last seen.
    """
    display: Any = importlib.import_module("IPython.display").display
    display(view)
    handle = display(twin_bundle(view.key, twin), raw=True, display_id=True)
    if draw is not None and handle is not None and isinstance(view, StepView):
        view.keep_twin(
            TwinKeeper(view.source.step, draw, lambda drawn: handle.update(twin_bundle(view.key, drawn), raw=True))
        )
