"""How much a view may say: `YAIE_NOTEBOOK=static` asks for output that is the same on every run."""

from __future__ import annotations

import os


def static_mode() -> bool:
    """Whether measured times must be left out (read at each call, so that a test or a user can switch)."""
    return os.environ.get("YAIE_NOTEBOOK", "").strip().lower() == "static"
