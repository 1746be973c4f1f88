"""The timeline in a real browser: nothing runs, nothing is cut off or overlaps, text is readable in both themes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from yaie_widgets import Timeline, draw_timeline

from .payloads import PAYLOADS
from .test_in_browser import CONTRAST, THEMES, chromium, page_of
from .test_timeline import many
from .timelines import history, snapshot, tape

__all__ = ["chromium"]
pytestmark = pytest.mark.browser
# Text that leaves the picture, or runs into the next text of its line.
MISPLACED = """() => {
  const wrong = [];
  for (const svg of document.querySelectorAll('svg')) {
    const width = svg.viewBox.baseVal.width, lines = new Map();
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBBox(), key = text.getAttribute('y');
      if (box.x < 0 || box.x + box.width > width) wrong.push('out: ' + text.textContent);
      if (!lines.has(key)) lines.set(key, []);
      if (box.width) lines.get(key).push([box.x, box.x + box.width, text.textContent]);
    }
    for (const line of lines.values()) {
      line.sort((a, b) => a[0] - b[0]);
      for (let i = 1; i < line.length; i++)
        if (line[i][0] < line[i - 1][1] - 0.5) wrong.push('over: ' + line[i - 1][2] + ' | ' + line[i][2]);
    }
  }
  return wrong;
}"""


def drawings() -> list[Timeline]:
    """Empty, a few, wide names, 40 and 200 requests."""
    wide = "WWWWWWWWWWWWWWWWWWWWWW 東京東京東京東京 m" * 4
    named = [replace(each, prompt=wide) for each in history(wide, "c")]
    return [
        draw_timeline(replace(snapshot(), steps=(), requests=()), replace(tape(), steps=())),
        draw_timeline(snapshot(), tape(), history(), budget=512),
        draw_timeline(snapshot(wide, "b"), tape(wide, "b"), named, budget=2048),
        many(40),
        many(200),
    ]


@pytest.mark.parametrize("theme", THEMES)
def test_text_fits_and_is_readable(chromium: Any, theme: str) -> None:
    page, events = page_of(chromium, theme, *(drawing.html for drawing in drawings()))
    assert events == []
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(CONTRAST) >= 4.5
    page.close()


def test_sixty_payloads_run_nothing(chromium: Any) -> None:
    pieces = []
    for payload in PAYLOADS:
        a, b, c = f"a {payload[:300]}", f"b {payload[:300]}", f"c {payload[:300]}"
        records = [replace(each, prompt=payload) for each in history(a, c)]
        pieces.append(draw_timeline(snapshot(a, b), tape(a, b, c), records).html)
    page, events = page_of(chromium, "light", *pieces)
    page.wait_for_timeout(200)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert page.locator("svg").count() == 60
    assert page.evaluate(MISPLACED) == []
    page.close()


def test_a_saved_picture_runs_nothing_and_follows_the_system(chromium: Any, tmp_path: Any) -> None:
    saved = draw_timeline(snapshot(PAYLOADS[0]), tape(PAYLOADS[0]), history(PAYLOADS[0])).save(tmp_path / "t.svg")
    for scheme, colour in (("light", "rgb(26, 98, 220)"), ("dark", "rgb(74, 128, 245)")):
        page, events = chromium.new_page(color_scheme=scheme), []
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))  # noqa: B023
        page.goto(saved.as_uri())
        assert events == []
        assert page.evaluate("getComputedStyle(document.querySelector('.f-decode')).fill") == colour
        page.close()
