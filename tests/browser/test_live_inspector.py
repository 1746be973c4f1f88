"""Branching from a token in a real JupyterLab: while the kernel is idle, while it is busy, and without its engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 256",
    "%%generate -m 48 -t 0 --ignore-eos --logprobs 5 -o story\nOnce upon a time there was a little fox",
    "%yaie inspect story",
    "print(_yaie.prompt[-1], _yaie.usage.cached, len(_yaie.prompt), _yaie.done)",
    "import time\nfor _ in range(600): time.sleep(0.05)",
    "%yaie unload",
]
START = 9  # tokens of the prompt


def branch(view: Any, place: int) -> str:
    """Click a token of the output, then Branch at its best alternative; gives that alternative's name and id."""
    tokens = view.locator('[aria-label="Output tokens"] .y-ins-tok')
    tokens.nth(place).click()
    row = view.locator(".y-ins-alt:has(.y-ins-branch)").first
    title: str = row.locator("span").first.get_attribute("title")
    row.get_by_role("button").click()
    return title


def tab(view: Any, number: int) -> Any:
    """The tab of a branch, once it is chosen and its text has ended."""
    found = view.locator('[role="tab"]').nth(number)
    view.page.wait_for_function(
        "node => node.getAttribute('aria-selected') === 'true' && !node.textContent.includes('tokens')",
        arg=found.element_handle(timeout=15_000),
        timeout=15_000,
    )
    return found


def test_branch_from_a_token(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(CELLS)
    page.run(0)
    page.run(1)
    cell = page.run(2)
    view = cell.locator(".y-ins.y-view")
    view.wait_for(timeout=10_000)
    assert cell.locator(".y-ins:visible").count() == 1, "the static form is hidden while the view lives"
    while_the_kernel_is_idle(page, view)
    while_a_cell_runs(page, view)
    without_the_engine(page, view)
    the_saved_form_has_the_branches(page)
    assert page.outside == []


def while_the_kernel_is_idle(page: Any, view: Any) -> None:
    name, token = branch(view, 8).rsplit(" · id ", 1)
    assert tab(view, 1).inner_text() == f"Branch 1: token 9 “{name}”"
    assert view.locator('[aria-label="Output tokens"] .y-ins-tok').count() == 48
    said = page.run(3).locator(".jp-OutputArea-output").inner_text().split()
    prompt = int(said[2])
    assert said == [token, str(prompt - 1), str(prompt), "True"], "the newest result shares all but its last token"
    assert f"{prompt - 1} of {prompt} tokens cached" in view.locator(".y-ins-tabs").inner_text()


def while_a_cell_runs(page: Any, view: Any) -> None:
    busy = page.run(4, wait=False)
    branch(view, 20)
    assert "token 21" in tab(view, 2).inner_text()
    assert "[*]" in busy.locator(".jp-InputArea-prompt").inner_text(), "the cell still ran"
    page.locator('[data-command="notebook:interrupt-kernel"]').first.click()
    page.ended(4)


def without_the_engine(page: Any, view: Any) -> None:
    page.run(5)
    branch(view, 3)
    say = view.locator(".y-ins-say")
    say.filter(has_text="Not branched: its engine was unloaded").wait_for(timeout=10_000)
    assert view.locator('[role="tab"]').count() == 3


def the_saved_form_has_the_branches(page: Any) -> None:
    saved = page.save(lambda book: json.dumps(book["cells"][2]["outputs"]).count("Tokens of req-") >= 6)
    assert "widgets" not in saved["metadata"]
    twin = next(
        o["data"] for o in saved["cells"][2]["outputs"] if "data-yaie-twin" in "".join(o["data"].get("text/html", ""))
    )
    assert "".join(twin["text/html"]).count('class="y-ins-hd"') == 3
    assert "".join(twin["text/plain"]).count("Tokens of req-") == 3
