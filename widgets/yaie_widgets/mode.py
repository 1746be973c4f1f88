"""How much a view may say: `YAIE_NOTEBOOK=static` asks for output that is the same on every run, `YAIE_NOTEBOOK=text`
for text in place of widgets, where a front end has none."""

from __future__ import annotations

import os


def static_mode() -> bool:
    """Whether measured times must be left out (read at each call, so that a test or a user can switch)."""
    return _mode() == "static"


def text_mode() -> bool:
    """Whether a cell shows what it generates as text that is replaced, without a widget."""
    return _mode() == "text"


def _mode() -> str:
    return os.environ.get("YAIE_NOTEBOOK", "").strip().lower()
