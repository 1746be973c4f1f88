"""The browser of the tests, as the fixture of each folder that needs one. Its driver keeps an event loop on the thread:
where other tests start loops of their own, it must not live longer than a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_RUNNING: list[Any] = []
HOUSE = Path(__file__).resolve().parents[1] / "scripts" / "house"


def headless_browser() -> Iterator[Any]:
    """A headless Chromium, one for each process; tests are skipped where there is none."""
    if _RUNNING:
        yield _RUNNING[0]
        return
    sys.path.append(str(HOUSE))
    from chromium import NoBrowser, headless_chromium

    try:
        with headless_chromium() as made:
            _RUNNING.append(made)
            yield made
            _RUNNING.clear()
    except NoBrowser as missing:
        pytest.skip(str(missing))
