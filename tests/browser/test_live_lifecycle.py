"""A live view in a real JupyterLab: beside its twin, over a reload, without its kernel, and in a notebook reopened."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 128",
    "%yaie replay",
    "%%generate -m 40 -t 0 --ignore-eos -q\nThe log is kept in flash memory.",
    "import os; os._exit(1)",
]
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
STEP = ".y-where"
STATE = ".y-state"


def wait_for_text(page: Any, selector: str, text: str, seconds: float = 20) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)",
        arg=[selector, text],
        timeout=1000 * seconds,
    )


def test_a_view_over_its_whole_life(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(CELLS)
    for index in range(3):
        page.run(index)
    wait_for_text(page, STEP, "Step 40 of 40")
    twin = page.locator("[data-yaie-twin]")
    assert twin.count() == 1 and not twin.is_visible()

    # Rested, the drawing that is saved has the steps, too.
    page.wait_for_function("() => document.querySelector('[data-yaie-twin]').textContent.includes('step 40')")
    assert not twin.is_visible()
    saved = page.save(lambda book: "step 40" in json.dumps(book["cells"][1]["outputs"]))
    assert "widgets" not in saved["metadata"] and page.saved.stat().st_size < 300_000

    # A reload shows the same and goes on.
    page.reload()
    wait_for_text(page, STEP, "Step 40 of 40", 40)
    assert page.locator(STATE).first.inner_text() == ""
    page.run(2)
    wait_for_text(page, STEP, "of 80")

    # A new kernel knows nothing of the old one's views, which say so and keep what they have.
    page.locator('[data-command="notebook:restart-kernel"]').click()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    wait_for_text(page, STATE, "Connection to the kernel lost at step 80")
    page.locator(".y-slider").focus()
    page.keyboard.press("Home")
    wait_for_text(page, STEP, "Step 1 of 80")
    assert page.outside == []

    # So does a kernel that dies.
    page.locator(IDLE).wait_for(timeout=30_000)
    page.run(0)
    page.run(1)
    wait_for_text(page, STEP, "No step yet")
    page.run(3, wait=False)
    wait_for_text(page, STATE, "Connection to the kernel lost")

    # Opened anew without that kernel, the drawing stands alone.
    again = lab_notebook(page.saved.name)
    twin = again.locator("[data-yaie-twin]")
    twin.wait_for(timeout=20_000)
    again.wait_for_timeout(1500)
    assert twin.is_visible() and "step 40, the newest of 40 steps" in twin.inner_text()
    assert not any(each.is_visible() for each in again.get_by_text("model not found").all())
    assert again.outside == []
