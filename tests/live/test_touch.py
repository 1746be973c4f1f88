"""Views under a finger: taps show and pin, drags scrub, two fingers zoom, and the page still scrolls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.live import answers, generations
from tests.live.conftest import Recordings
from tests.live.page import Harness, settle

pytestmark = pytest.mark.browser
LEFT, RIGHT = 150, 98
Point = tuple[float, float]


class Fingers:
    """Touches as the system tells them to the browser."""

    def __init__(self, page: Any) -> None:
        self.page, self.session = page, page.context.new_cdp_session(page)

    def drag(self, *paths: Sequence[Point]) -> None:
        """One finger for each path, all at once."""
        for places in zip(*paths, strict=True):
            kind = "touchStart" if places == tuple(path[0] for path in paths) else "touchMove"
            points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
            self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        self.session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        settle(self.page)

    def tap(self, selector: str, nth: int = 0) -> None:
        """A tap in the middle of an element."""
        self.page.locator(selector).nth(nth).tap()
        settle(self.page)


@pytest.fixture
def touched(harness: Harness) -> Callable[[str, dict[str, Any]], tuple[Any, Fingers]]:
    """`touched(name, content) -> (page, fingers)`."""

    def make(name: str, content: dict[str, Any]) -> tuple[Any, Fingers]:
        page = harness(name, content, touch=True)
        return page, Fingers(page)

    return make


def line(box: dict[str, float], first: float, last: float, down: float = 0.5) -> list[Point]:
    """Five places from one part of an element's width to another."""
    y = box["y"] + down * box["height"]
    return [(box["x"] + box["width"] * (first + (last - first) * part / 4), y) for part in range(5)]


def test_the_bar_scrubs_and_its_bracket_moves(touched: Any, recording: Recordings) -> None:
    made = recording("busy")
    last = made["steps"][-1]["step"]
    page, fingers = touched("timeline", made)
    thumb = page.get_by_role("slider", name="Steps in sight")
    fingers.tap("[aria-label='Previous step']")
    assert page.locator(".y-slider").input_value() == str(last - 1)
    fingers.drag(line(thumb.bounding_box(), 0.6, 0.2))
    first = int(thumb.get_attribute("aria-valuetext").split()[1])
    assert 1 <= first < last - 70
    fingers.drag(line(page.locator(".y-overview").bounding_box(), 0.3, 0.5, 0.4))
    width = 900 - LEFT - RIGHT
    assert abs(int(page.locator(".y-slider").input_value()) - last * (450 - LEFT) / width) <= 1.5
    assert page.errors == []


def test_the_rows_of_the_timeline_scrub_and_two_fingers_zoom(touched: Any, recording: Recordings) -> None:
    page, fingers = touched("timeline", recording("busy"))
    fingers.tap(".y-tl-name", 1)
    assert page.locator(".y-tl-name").nth(1).get_attribute("aria-selected") == "true"
    area = page.locator(".y-tl-scroll").bounding_box()
    fingers.drag(line(area, 0.3, 0.5))
    step = int(page.locator(".y-slider").input_value())
    assert 50 <= step <= 80
    fingers.drag(line(area, 0.45, 0.3), line(area, 0.55, 0.75))
    assert int(page.locator(".y-tl-fit").inner_text().split()[0]) < 45
    assert page.errors == []


def test_a_tap_on_the_dashboard_shows_a_step_and_it_stays(touched: Any, recording: Recordings) -> None:
    page, fingers = touched("dashboard", recording("busy"))
    plot = page.locator(".y-dash-plot")
    newest = plot.get_attribute("aria-valuetext")
    x, y = line(plot.bounding_box(), 0.4, 0.4)[0]
    page.touchscreen.tap(x, y)
    assert plot.get_attribute("aria-valuetext") != newest
    page.touchscreen.tap(890, y)
    assert plot.get_attribute("aria-valuetext") == newest
    fingers.tap(".y-dash-pause")
    assert page.get_by_role("button", name="Go on").is_visible()
    fingers.drag(line(plot.bounding_box(), 0.4, 0.5))
    assert int(plot.get_attribute("aria-valuenow")) == pytest.approx(96 * (450 - LEFT) / (900 - LEFT - RIGHT), abs=1.5)
    assert page.errors == []


def test_a_tap_shows_a_block_and_a_second_one_pins_it(touched: Any, recording: Recordings) -> None:
    page, fingers = touched("blocks", recording("busy"))
    card = page.locator(".y-map-card")
    for block in (4, 7, 7):
        fingers.tap(f"[data-id='{block}']")
        assert card.inner_text().startswith(f"Block {block}\n")
    fingers.tap(".y-map-entry", 1)
    assert page.locator(".y-map-entry").nth(1).get_attribute("aria-pressed") == "true"
    assert card.inner_text().startswith("Block 7") and page.errors == []


def test_a_large_pool_is_read_by_taps(touched: Any, recording: Recordings) -> None:
    page, _ = touched("blocks", recording("full"))
    box = page.locator(".y-map-canvas").bounding_box()
    page.touchscreen.tap(box["x"] + 40 + 3 * 10 + 1, box["y"] + 3 * 5 + 1)
    settle(page)
    columns = int(page.get_attribute(".y-map-picture", "aria-colcount"))
    assert f"Block {5 * columns + 10:,}" in page.inner_text(".y-map-card") and page.errors == []


def test_rows_of_the_tree_are_picked_and_closed(touched: Any, recording: Recordings) -> None:
    page, fingers = touched("tree", recording("busy"))
    rows = page.locator(".y-tree-row")
    before = rows.count()
    fingers.tap(".y-tree-row[aria-expanded=true] .y-tree-toggle")
    assert rows.count() < before
    fingers.tap(".y-tree-row[aria-level='1']")
    assert page.locator(".y-tree-row.picked").count() == 1 and page.errors == []


def test_a_token_is_picked_and_a_branch_asked_for(touched: Any) -> None:
    answer = answers.told().answers[0].to_dict()
    page, fingers = touched(
        "inspector", {"kind": "whole", "answers": [answer], "scales": answers.SCALES, "colour": "probability"}
    )
    fingers.tap(f"[data-at='{len(answer['prompt']) + 3}']")
    assert page.locator(".y-ins-tok.sel").get_attribute("data-at") == str(len(answer["prompt"]) + 3)
    page.get_by_role("button", name="Branch").first.tap()
    sent = page.py_messages()[-1]
    assert (sent["kind"], sent["position"]) == ("branch", 3) and page.errors == []


def test_a_tap_on_stop_is_heard(touched: Any) -> None:
    page, _ = touched("generation", generations.one("decode"))
    page.get_by_role("button", name="Stop").tap()
    assert page.py_messages()[-1]["kind"] == "stop" and page.errors == []


@pytest.mark.parametrize("name", ["timeline", "blocks", "dashboard", "tree"])
def test_a_finger_that_goes_up_scrolls_the_page(touched: Any, recording: Recordings, name: str) -> None:
    page, fingers = touched(name, recording("busy"))
    page.evaluate("document.body.style.height = '4000px'")
    x, y = 400, page.locator(".yaie").bounding_box()["height"] - 30
    fingers.drag([(x, y - 30 * part) for part in range(8)])
    page.wait_for_function("() => scrollY > 60")
    assert page.errors == []
