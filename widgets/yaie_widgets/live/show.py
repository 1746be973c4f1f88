"""A live view in a cell, with the drawing that stands in for it where no kernel is."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from html import escape
from typing import Any

from .view import LiveView


def show(view: LiveView, twin: Mapping[str, str]) -> None:
    """Display the widget and, hidden while the widget lives, its static twin."""
    display: Any = importlib.import_module("IPython.display").display
    display(view)
    display(twin_bundle(view, twin), raw=True)


def twin_bundle(view: LiveView, twin: Mapping[str, str]) -> dict[str, str]:
    """The twin as an output of its own. The page of the widget hides what carries its key."""
    html = twin.get("text/html") or f"<pre>{escape(twin['text/plain'])}</pre>"
    return {"text/plain": twin["text/plain"], "text/html": f'<div data-yaie-twin="{view.key}">{html}</div>'}
