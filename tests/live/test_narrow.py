"""Views in a narrow window and with large numbers: their text is there, whole, and no mark stands on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live import answers, generations
from tests.live.conftest import Recordings
from tests.live.looks import CUT, check_looks
from tests.live.page import Harness, go, settle

pytestmark = pytest.mark.browser
STEPS = ("tree", "blocks", "timeline", "dashboard", "replay")
# Texts of the first row that must be wide enough to say something.
WORDS = """() => [...document.querySelectorAll('.y-tree-words')].map(node => [node.textContent, node.clientWidth])"""
# Texts of the bar that a mark of its drawing stands on.
CROSSED = """() => {
  const hit = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const texts = [...document.querySelectorAll('.y-where > *')].map(node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [node.textContent, range.getBoundingClientRect()];
  });
  const drawn = document.querySelectorAll('.y-overview rect, .y-overview path');
  const marks = [...drawn].map(node => node.getBoundingClientRect());
  return texts.filter(([, box]) => box.width && marks.some(mark => hit(box, mark))).map(([text]) => text);
}"""


def renumbered(recording: dict[str, Any], by: int) -> dict[str, Any]:
    """The recording as if `by` steps had gone before it."""
    for step in recording["steps"]:
        step["step"] += by
    recording["base"]["step"] += by
    return recording


def content(name: str, recording: Recordings) -> dict[str, Any]:
    """What a view of this name shows here."""
    if name in STEPS:
        return recording("busy")
    if name == "inspector":
        answer = answers.made(["word"] * 60, prompt=20).to_dict()
        return {"kind": "whole", "answers": [answer], "scales": answers.SCALES, "colour": "probability"}
    ended = generations.ended("req-1", "A prompt of some words", "A text of some words", "stop")
    return generations.whole(ended, texts=("A text of some words",))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 400, 500])
@pytest.mark.parametrize("name", [*STEPS, "inspector", "generation"])
def test_a_narrow_view_shows_its_text(
    harness: Harness, recording: Recordings, name: str, width: int, theme: str
) -> None:
    page = harness(name, content(name, recording), theme, width)
    if name == "tree":
        words = page.evaluate(WORDS)
        assert words and all(shown >= min(32, 6 * len(text)) for text, shown in words), words
    if name in STEPS:
        check_looks(page)
    # In running text and beside a figure words stand close to each other.
    assert page.evaluate(CUT) == [] and page.errors == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("past", [0, 900, 1200, 98_000])
def test_no_mark_of_the_bar_stands_on_its_text(harness: Harness, recording: Recordings, past: int) -> None:
    run = renumbered(recording("full"), past)
    first, last = run["steps"][0]["step"], run["steps"][-1]["step"]
    page = harness("timeline", run)
    for width, step in [(width, step) for width in (900, 500) for step in (last, (first + last) // 2, first)]:
        page.set_viewport_size({"width": width, "height": 1000})
        go(page, step)
        where = page.locator(".y-where")
        assert where.text_content().startswith(f"Step {step:,} of {last:,}")
        assert all(part.evaluate("n => n.scrollWidth <= n.clientWidth") for part in where.locator("> *").all())
        assert page.evaluate(CROSSED) == []
    assert page.errors == []


def test_every_number_of_a_large_map_is_whole(harness: Harness, recording: Recordings) -> None:
    page = harness("blocks", recording("full"))
    page.evaluate("""() => {
      window.low = [];
      const write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        window.low.push(parseFloat(this.canvas.style.height) - y);
        write.call(this, text, x, y);
      };
    }""")
    for width in range(400, 900, 9):
        page.set_viewport_size({"width": width, "height": 800})
        settle(page)
    low = page.evaluate("window.low")
    assert len(low) > 100 and min(low) >= 10
