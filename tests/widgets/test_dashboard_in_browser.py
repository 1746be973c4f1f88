"""The dashboard's drawing in a real browser: nothing runs, nothing is cut off or overlaps, text is readable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.played import Json, played
from yaie_widgets import Dashboard, draw_dashboard

from .payloads import PAYLOADS
from .test_in_browser import CONTRAST, THEMES, chromium, page_of
from .test_timeline_in_browser import MISPLACED

__all__ = ["chromium"]
pytestmark = pytest.mark.browser


def recording(run: str, **engine: Any) -> Json:
    made = played(run).recording
    return {**made, "engine": {**made["engine"], "memory": 642_000_000, **engine}}


def drawings() -> list[Dashboard]:
    """Empty, short, busy, 629 steps, wide names and large figures."""
    wide = "WWWWWWWWWWWWWWWW 東京東京東京 m" * 4
    large = recording("busy", name=wide, memory=2**40, num_blocks=1_000_000, max_num_batched_tokens=131_072)
    return [draw_dashboard(recording(name)) for name in ("empty", "small", "busy", "full")] + [draw_dashboard(large)]


@pytest.mark.parametrize("theme", THEMES)
def test_text_fits_and_is_readable(chromium: Any, theme: str) -> None:
    page, events = page_of(chromium, theme, *(drawing.html for drawing in drawings()))
    assert events == []
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(CONTRAST) >= 4.5
    page.close()


def test_sixty_payloads_run_nothing(chromium: Any) -> None:
    fields = ("name", "dtype", "device", "tier", "attention_backend", "state")
    made = [draw_dashboard(recording("small", **dict.fromkeys(fields, payload))) for payload in PAYLOADS]
    page, events = page_of(chromium, "light", *(drawing.html for drawing in made))
    page.wait_for_timeout(100)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert page.locator("svg").count() == len(PAYLOADS)
    page.close()
