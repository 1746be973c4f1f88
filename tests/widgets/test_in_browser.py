"""Drawings in a real browser: nothing runs, nothing is cut off or overlaps, and text is readable in both themes."""

from __future__ import annotations

from typing import Any

import pytest

from yaie_widgets import draw_block_table, draw_radix_tree, explain_node, explain_request

from .drawn import CONTRAST, THEMES, page_of
from .payloads import PAYLOADS
from .snapshots import Entry, busy_snapshot, make_record, make_snapshot

pytestmark = pytest.mark.browser
# Text that leaves the frame of its node, or that runs into the next text of its line.
MISPLACED = """() => {
  const wrong = [];
  for (const node of document.querySelectorAll('g.node')) {
    const lines = new Map(), outer = node.querySelector('rect')?.getBBox();
    const right = outer && outer.width > 200 ? outer.x + outer.width : Infinity;
    for (const text of node.querySelectorAll('text')) {
      const box = text.getBBox(), key = text.getAttribute('y');
      if (box.x + box.width > right) wrong.push('out: ' + text.textContent);
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push([box.x, box.x + box.width, text.textContent]);
    }
    for (const line of lines.values()) {
      line.sort((a, b) => a[0] - b[0]);
      for (let i = 1; i < line.length; i++)
        if (line[i][0] < line[i - 1][1] - 0.5) wrong.push('over: ' + line[i - 1][2] + ' | ' + line[i][2]);
    }
  }
  return wrong;
}"""


def test_sixty_payloads_run_nothing(browser: Any) -> None:
    entries = [Entry((f"{number}", payload), f"r{number} {payload[:80]}") for number, payload in enumerate(PAYLOADS)]
    snapshot = make_snapshot(entries, total=400)
    tree = draw_radix_tree(snapshot, max_nodes=200)
    record = make_record(request_id=PAYLOADS[0], prompt=PAYLOADS[1], error=PAYLOADS[3], finish_reasons=("error",))
    explained = [explain_request(record, record, snapshot), *(explain_node(snapshot, n.id) for n in snapshot.tree)]
    pieces = [tree.html, draw_block_table(snapshot).html, *(e._repr_mimebundle_()["text/html"] for e in explained)]
    page, events = page_of(browser, "light", *pieces)
    page.wait_for_timeout(200)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert page.locator("svg").count() == 2
    assert page.evaluate("document.body.textContent").count("<script>alert(1)</script>") >= 3
    page.close()


def test_a_standalone_svg_runs_nothing(browser: Any, tmp_path: Any) -> None:
    entries = [Entry((f"{number}", payload)) for number, payload in enumerate(PAYLOADS)]
    saved = draw_radix_tree(make_snapshot(entries, total=400), max_nodes=200).save(tmp_path / "tree.svg")
    page, events = browser.new_page(), []
    page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
    page.goto(saved.as_uri())
    assert events == []
    assert page.evaluate("document.documentElement.tagName") == "svg"
    page.close()


@pytest.mark.parametrize("theme", THEMES)
def test_text_fits_and_is_readable(browser: Any, theme: str) -> None:
    busy = busy_snapshot()
    drawings = [draw_radix_tree(busy), draw_radix_tree(busy, request="r12", max_nodes=6), draw_block_table(busy)]
    page, events = page_of(browser, theme, *(drawing.html for drawing in drawings))
    assert events == []
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(CONTRAST) >= 4.5
    page.close()


def test_a_dark_page_is_dark(browser: Any) -> None:
    page, _ = page_of(browser, "dark", draw_block_table(busy_snapshot()).html)
    ground = page.evaluate("getComputedStyle(document.querySelector('div.yaie-drawing')).backgroundColor")
    assert ground == "rgb(17, 17, 17)"
    assert page.evaluate("getComputedStyle(document.querySelector('.f-shared')).fill") == "rgb(232, 200, 250)"
    page.close()


def test_without_styles_the_text_stands_in_for_the_picture(browser: Any) -> None:
    """A notebook that is not trusted yet loses style sheets and SVG, but not the text inside."""
    page, _ = page_of(browser, "light", draw_radix_tree(busy_snapshot()).html)
    assert page.locator("svg").is_visible()
    assert not page.locator("pre").is_visible()
    page.evaluate("document.querySelectorAll('style').forEach(style => style.remove())")
    assert not page.locator("svg").is_visible()
    assert page.locator("pre").is_visible()
    page.close()


@pytest.mark.parametrize(("scheme", "expected"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 17, 17)")])
def test_a_saved_svg_follows_the_system(browser: Any, tmp_path: Any, scheme: str, expected: str) -> None:
    saved = draw_block_table(busy_snapshot()).save(tmp_path / "blocks.svg")
    page = browser.new_page(color_scheme=scheme)
    page.goto(saved.as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('rect')).fill") == expected
    page.close()
