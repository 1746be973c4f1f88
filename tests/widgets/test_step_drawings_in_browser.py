"""Timeline and dashboard, drawn, in a real browser: nothing runs, nothing is cut off or overlaps, text is readable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.live.played import Json, played
from yaie_widgets import Dashboard, Timeline, draw_dashboard, draw_timeline

from .drawn import CONTRAST, MISPLACED, THEMES, page_of
from .payloads import PAYLOADS
from .test_timeline import many
from .timelines import history, snapshot, tape

pytestmark = pytest.mark.browser
KINDS = ("timeline", "dashboard")


def recording(run: str, **engine: Any) -> Json:
    made = played(run).recording
    return {**made, "engine": {**made["engine"], "memory": 642_000_000, **engine}}


def drawings(kind: str) -> list[Timeline] | list[Dashboard]:
    """Empty, short, busy, with wide names and large figures, and with very many requests or steps."""
    if kind == "timeline":
        wide = "WWWWWWWWWWWWWWWWWWWWWW 東京東京東京東京 m" * 4
        named = [replace(each, prompt=wide) for each in history(wide, "c")]
        return [
            draw_timeline(replace(snapshot(), steps=(), requests=()), replace(tape(), steps=())),
            draw_timeline(snapshot(), tape(), history(), budget=512),
            draw_timeline(snapshot(wide, "b"), tape(wide, "b"), named, budget=2048),
            many(40),
            many(200),
        ]
    wide = "WWWWWWWWWWWWWWWW 東京東京 m" * 4
    large = recording("busy", name=wide, memory=2**40, num_blocks=1_000_000, max_num_batched_tokens=131_072)
    return [draw_dashboard(recording(name)) for name in ("empty", "small", "busy", "full")] + [draw_dashboard(large)]


def hostile(kind: str, payload: str) -> Timeline | Dashboard:
    """A drawing that has the payload wherever it has text of others."""
    if kind == "timeline":
        a, b, c = (f"{name} {payload[:300]}" for name in "abc")
        records = [replace(each, prompt=payload) for each in history(a, c)]
        return draw_timeline(snapshot(a, b), tape(a, b, c), records)
    fields = ("name", "dtype", "device", "tier", "attention_backend", "state")
    return draw_dashboard(recording("small", **dict.fromkeys(fields, payload)))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_text_fits_and_is_readable(browser: Any, kind: str, theme: str) -> None:
    page, events = page_of(browser, theme, *(drawing.html for drawing in drawings(kind)))
    assert events == []
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(CONTRAST) >= 4.5
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_sixty_payloads_run_nothing(browser: Any, kind: str) -> None:
    page, events = page_of(browser, "light", *(hostile(kind, payload).html for payload in PAYLOADS))
    page.wait_for_timeout(100)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert page.locator("svg").count() == len(PAYLOADS)
    # The dashboard's line has the payload seven times: there the browser's font decides.
    assert kind == "dashboard" or page.evaluate(MISPLACED) == []
    page.close()


def test_a_saved_picture_runs_nothing_and_follows_the_system(browser: Any, tmp_path: Any) -> None:
    saved = draw_timeline(snapshot(PAYLOADS[0]), tape(PAYLOADS[0]), history(PAYLOADS[0])).save(tmp_path / "t.svg")
    for scheme, colour in (("light", "rgb(26, 98, 220)"), ("dark", "rgb(74, 128, 245)")):
        page, events = browser.new_page(color_scheme=scheme), []
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))  # noqa: B023
        page.goto(saved.as_uri())
        assert events == []
        assert page.evaluate("getComputedStyle(document.querySelector('.f-decode')).fill") == colour
        page.close()
