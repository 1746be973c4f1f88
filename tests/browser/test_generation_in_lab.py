"""Generations in a real JupyterLab: text arrives, Stop works, nothing is lost by a reload, a dead kernel or a save."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LONG = "-m 1900 --ignore-eos -t 0"
CELLS = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 1024",
    f"%%generate {LONG} -o busy\nOnce upon a time",
    "%%generate -m 12 -t 0\nOnce upon a time there was",
    f"%%generate {LONG} -b -o back\nIn the background",
    f"%%generate {LONG} -o stopped\nInterrupted later",
    "prompts = [f'Story {n}: once' for n in range(8)]",
    "%%batch --from prompts -m 400 --ignore-eos -t 0\n",
    f"%%generate {LONG} -b -o dying\nThe kernel dies",
    "import os; os._exit(1)",
]
HEIGHT = "node => node.getBoundingClientRect().height"
LENGTH = "node => node.firstChild.data.length"
RATE = "rate exceeded"


def text_of(cell: Any) -> Any:
    return cell.locator(".y-gen-text")


def streaming(cell: Any) -> int:
    """Characters in sight, once some more have come."""
    text = text_of(cell)
    cell.page.wait_for_function("node => node.firstChild.data.length > 20", arg=text.element_handle(), timeout=30_000)
    first = int(text.evaluate(LENGTH))
    cell.page.wait_for_function(
        "([node, first]) => node.firstChild.data.length > first", arg=[text.element_handle(), first], timeout=10_000
    )
    return first


def static(cell: Any) -> Any:
    """The static form, once it has taken the place of the widget."""
    found = cell.locator(".y-gen.twin")
    found.wait_for(timeout=30_000)
    assert cell.locator(".jupyter-widgets").count() == 0
    return found


@pytest.fixture
def page(lab_notebook: Callable[..., Any]) -> Any:
    page = lab_notebook(CELLS)
    page.run(0)
    return page


def test_a_notebook_of_generations(page: Any, lab: Any, lab_notebook: Callable[..., Any]) -> None:
    stops_while_the_cell_is_busy(page)
    shows_a_short_one(page)
    streams_in_the_background_through_a_reload(page)
    is_interrupted_by_the_toolbar(page)
    runs_eight_at_full_speed(page, lab)
    survives_the_kernel(page, lab_notebook)
    assert page.outside == []


def stops_while_the_cell_is_busy(page: Any) -> None:
    cell = page.run(1, wait=False)
    streaming(cell)
    assert cell.locator(".y-gen-prompt .computed, .y-gen-prompt .cached").count() > 0
    dark = cell.locator(".y-gen").evaluate("node => getComputedStyle(node).backgroundColor")
    assert dark == "rgb(17, 17, 17)"
    full = "node => node.scrollHeight > node.clientHeight"  # from here on the view does not grow
    page.wait_for_function(full, arg=text_of(cell).element_handle(), timeout=30_000)
    live = cell.locator(".y-gen").evaluate(HEIGHT)
    cell.get_by_role("button", name="Stop this request").click()
    twin = static(cell)
    assert twin.evaluate(HEIGHT) == live, "nothing moves when the static form takes the place"
    state = twin.locator(".y-gen-state")
    assert re.fullmatch(r"cancelled · [\d,]+ tokens kept", state.inner_text().strip())
    page.ended(1)
    assert cell.locator(".jp-RenderedText[data-mime-type*=error], [data-mime-type*=stderr]").count() == 0


def shows_a_short_one(page: Any) -> None:
    cell = page.run(2)
    twin = static(cell)
    assert "12 tokens" in twin.locator(".y-gen-stats").inner_text().replace("\n", " ")
    assert "finished · length" in twin.inner_text()


def streams_in_the_background_through_a_reload(page: Any) -> None:
    cell = page.run(3)
    streaming(cell)
    page.save(lambda book: book["cells"][3]["outputs"])
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(3)
    assert streaming(cell) > 20, "the whole text is back"
    cell.get_by_role("button", name="Stop this request").click()
    twin = static(cell)  # a page that was loaded again puts it there itself
    assert re.fullmatch(r"cancelled · [\d,]+ tokens kept", twin.locator(".y-gen-state").inner_text().strip())
    assert text_of(twin).evaluate(LENGTH) > 20


def is_interrupted_by_the_toolbar(page: Any) -> None:
    cell = page.run(4, wait=False)
    streaming(cell)
    page.locator('[data-command="notebook:interrupt-kernel"]').first.click()
    assert "cancelled" in static(cell).locator(".y-gen-state").inner_text()
    page.ended(4)
    cell.get_by_text(re.compile(r"^interrupted: \d+ tokens kept")).wait_for(timeout=10_000)


def runs_eight_at_full_speed(page: Any, lab: Any) -> None:
    page.run(5)
    cell = page.run(6)
    twin = static(cell)
    assert twin.locator(".y-gen-note").inner_text() == "8 requests · 8 finished"
    assert twin.locator("summary.y-gen-row").count() == 8
    assert RATE not in page.content() and RATE not in lab.log.read_text()


def survives_the_kernel(page: Any, lab_notebook: Callable[..., Any]) -> None:
    page.run(7, wait=True)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(7)
    streaming(cell)
    page.run(8, wait=False)
    page.wait_for_function(
        "node => node.textContent.includes('Connection to the kernel lost')",
        arg=cell.element_handle(),
        timeout=30_000,
    )
    assert text_of(cell).evaluate(LENGTH) > 20
    saved = page.save(lambda book: all(book["cells"][index]["outputs"] for index in (1, 2, 4, 6, 7)))
    assert "widgets" not in saved["metadata"] and page.saved.stat().st_size < 300_000
    again = lab_notebook(page.saved.name)
    for index, words in ((1, "cancelled"), (2, "finished · length"), (4, "cancelled"), (6, "8 finished")):
        assert words in again.locator(".jp-Notebook .jp-CodeCell").nth(index).locator(".y-gen.twin").inner_text()


SAVED_EARLY = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 1024",
    f"%%generate {LONG} -b -o long\nReloaded on its way",
    f"%%generate {LONG} -b -o dying\nThe kernel dies later",
    "import os; os._exit(1)",
]


def loaded_again(page: Any) -> None:
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)


def test_what_was_saved_early_or_loaded_again_is_readable_without_the_kernel(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(SAVED_EARLY)
    page.run(0)
    streaming(page.run(1))
    page.save(lambda book: book["cells"][1]["outputs"])
    loaded_again(page)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(1)
    streaming(cell)
    cell.get_by_role("button", name="Stop this request").click()
    assert "tokens kept" in static(cell).inner_text(), "the page has put the form there itself"
    cell = page.run(2)
    streaming(cell)
    assert cell.locator("[data-yaie-twin]").is_hidden(), "the widget hides the text that stands in for it"
    page.wait_for_function(  # the text so far is renewed every five seconds
        "node => node.querySelector('[data-yaie-twin] pre')?.textContent.length > 20",
        arg=cell.element_handle(),
        timeout=30_000,
    )
    page.run(3, wait=False)
    cell.get_by_text("Connection to the kernel lost").first.wait_for(timeout=30_000)
    saved = page.save(lambda book: "cancelled" in json.dumps(book["cells"][1]["outputs"]))
    outputs = [cell["outputs"] for cell in saved["cells"]]
    assert [one["output_type"] for one in outputs[1]] == ["display_data", "execute_result"]
    assert "cancelled" in "".join(outputs[1][0]["data"]["text/plain"])
    again = lab_notebook(page.saved.name)
    cells = again.locator(".jp-Notebook .jp-CodeCell")
    assert "tokens kept" in cells.nth(1).locator(".y-gen.twin").inner_text()
    stand_in = cells.nth(2).locator("[data-yaie-twin] pre")
    assert len(stand_in.inner_text()) > 20 and stand_in.is_visible()
    again.wait_for_timeout(1000)
    assert not any(found.is_visible() for found in again.get_by_text("model not found").all())
