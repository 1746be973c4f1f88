"""Views at every step of a busy run: nothing moves, nothing is cut off, and now and then all of it is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.looks import check_looks
from tests.live.page import Harness, go
from tests.live.runs import enlarged

pytestmark = pytest.mark.browser
# The heights that the view has at these steps, and the steps at which its header is cut off.
WALK = """async steps => {
  const slider = document.querySelector(".y-slider"), view = document.querySelector(".yaie");
  const heights = new Set(), cut = [];
  for (const step of steps) {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
    heights.add(view.getBoundingClientRect().height);
    const meta = document.querySelector(".y-meta");
    if (meta.scrollWidth > meta.clientWidth) cut.push(step);
  }
  return [[...heights], cut];
}"""


@pytest.mark.parametrize("width", [560, 900])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["tree", "blocks"])
def test_every_step_fits_and_keeps_the_height(
    harness: Harness, recording: Recordings, name: str, theme: str, width: int
) -> None:
    run: dict[str, Any] = recording("busy")
    page = harness(name, enlarged(run, 160) if name == "blocks" else run, theme, width)
    steps = [step["step"] for step in run["steps"]]
    heights, cut = page.evaluate(WALK, steps)
    assert len(heights) == 1 and cut == []
    for step in steps[:: 8 if theme == "light" else 16]:
        go(page, step)
        check_looks(page)
