"""Radix tree and block map in a real JupyterLab: they follow the engine, and scrub through its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = [
    "%load_ext yaie_magic\n%yaie load tiny --num-blocks 300",
    "%yaie tree --live",
    "%yaie blocks --live",
    "%%generate -m 60 -t 0 --ignore-eos -o first\nOnce upon a time there was a little fox",
    "%%generate -m 60 -t 0 --ignore-eos -o second\nOnce upon a time there was a little bear",
]


def test_they_follow_and_scrub(lab_notebook: Callable[..., Any]) -> None:
    page = lab_notebook(CELLS)
    page.run(0)
    tree, blocks = (page.run(place).locator(".yaie.y-view") for place in (1, 2))
    tree.locator(".y-tree-note").wait_for(timeout=10_000)
    assert tree.locator(".y-tree-note").inner_text().startswith("The cache holds no prefix yet")
    assert page.locator(".yaie-drawing:visible").count() == 0, "the drawings are hidden while the views live"
    for place in (3, 4):
        page.run(place)
    tree.scroll_into_view_if_needed()  # out of sight it waits
    tree.locator(".y-tree-words", has_text="little").first.wait_for(timeout=10_000)
    branches = tree.locator(".y-tree-row[aria-level='2']")
    branches.nth(1).wait_for(timeout=10_000)
    assert branches.count() == 2
    blocks.scroll_into_view_if_needed()
    figure = blocks.locator(".y-map-entry", has_text="Cached").locator(".y-map-figure")
    newest = int(figure.inner_text())
    assert newest > 4
    scrub(blocks, 5)
    assert int(figure.inner_text()) < newest
    assert blocks.locator(".y-map-cell.held").count() >= 1
    blocks.locator(".y-map-cell.held").first.hover()
    assert "Once upon" in blocks.locator(".y-map-quote").inner_text()
    lines = "nodes => nodes.map(node => node.getBoundingClientRect().height)"
    assert max(blocks.locator(".y-map-card dt").evaluate_all(lines)) < 20, "the host's lists are other ones"
    keys_are_the_views_own(page, tree)
    assert page.outside == []


def keys_are_the_views_own(page: Any, tree: Any) -> None:
    """Arrows move in the tree, and the notebook, which has them for its cells, hears nothing."""
    rows = tree.locator(".y-tree-row")
    rows.first.click()
    active = page.evaluate("[...document.querySelectorAll('.jp-Cell')].findIndex(c => c.matches('.jp-mod-active'))")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert rows.nth(1).evaluate("row => row === document.activeElement")
    after = page.evaluate("[...document.querySelectorAll('.jp-Cell')].findIndex(c => c.matches('.jp-mod-active'))")
    assert after == active


def scrub(view: Any, step: int) -> None:
    """Put the slider of a view on a step."""
    slider = view.locator(".y-slider")
    slider.evaluate("(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')) }", step)
    view.page.wait_for_function(
        "([node, step]) => node.textContent.startsWith(`Step ${step} of`)",
        arg=[view.locator(".y-where").element_handle(), step],
    )
    view.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
