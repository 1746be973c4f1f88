"""Dashboard and timeline in a real JupyterLab: they follow the engine while a cell runs, and the trace is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.widgets.test_trace import check_trace

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 300",
    "%yaie dashboard",
    "%yaie timeline",
    "%%generate -m 200 -t 0 --ignore-eos -o first\nOnce upon a time there was a little fox",
]


def test_they_follow_a_running_cell(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(CELLS)
    page.run(0)
    dashboard, timeline = (page.run(place).locator(".yaie.y-view") for place in (1, 2))
    for view in (dashboard, timeline):
        view.get_by_text("No step recorded yet").wait_for(timeout=10_000)
    page.run(3)
    dashboard.get_by_text("ready · step 200 · live").wait_for(timeout=20_000)
    timeline.get_by_text("1 request · steps 141 to 200").wait_for(timeout=20_000)
    assert total(dashboard, "Output tokens") == "200" and total(dashboard, "Ended") == "1 of 1"
    assert int(total(dashboard, "Memory").removesuffix(" MiB").replace(",", "")) > 50
    assert timeline.locator(".y-tl-output").inner_text() == "200 tok"
    assert page.locator(".yaie-drawing:visible").count() == 0, "the drawings are hidden while the views live"
    with page.expect_download() as download:
        timeline.get_by_role("button", name="Save all recorded steps").click()
    trace = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert sum(event["name"] == "forward" for event in check_trace(trace)) == 200
    # The host's own styles change nothing.
    assert dashboard.locator(".y-dash-totals").bounding_box()["height"] < 60
    assert timeline.locator(".y-tl-panel").bounding_box()["height"] == 232
    assert page.outside == []


def total(dashboard: Any, name: str) -> str:
    """The figure under a name."""
    found: str = dashboard.locator(".y-dash-totals > div", has_text=name).locator(".y-dash-total").inner_text()
    return found
