"""Drawings in a real browser: nothing runs, nothing is cut off or overlaps, and text is readable in both themes."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from yaie_widgets import draw_block_table, draw_radix_tree, explain_node, explain_request

from .payloads import PAYLOADS
from .snapshots import Entry, busy_snapshot, make_record, make_snapshot

pytestmark = pytest.mark.browser
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
THEMES = {
    "light": ('data-jp-theme-light="true"', ""),
    "dark": (
        'data-jp-theme-light="false"',
        ":root{--jp-layout-color0:#111;--jp-ui-font-color1:rgba(255,255,255,.87);--jp-border-color2:#424242}",
    ),
}
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
# The smallest contrast of ink on the page's own ground; text on a block has its own colours.
CONTRAST = """() => {
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const painted = (...colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255);
  };
  let smallest = 21;
  for (const text of document.querySelectorAll('div.yaie-drawing text')) {
    if (/f-on-/.test(text.getAttribute('class') || '')) continue;
    const ground = getComputedStyle(text.closest('div.yaie-drawing')).backgroundColor;
    const pair = [light(painted(ground)), light(painted(ground, getComputedStyle(text).fill))].sort((a, b) => b - a);
    smallest = Math.min(smallest, (pair[0] + 0.05) / (pair[1] + 0.05));
  }
  return smallest;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("no Chromium on PATH, or playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=flags)
        yield browser
        browser.close()


def page_of(browser: Any, theme: str, *pieces: str) -> tuple[Any, list[str]]:
    """A page with the pieces in it, and the list of everything in it that ran, failed or was requested."""
    page, events = browser.new_page(viewport={"width": 1100, "height": 700}), []
    page.on("dialog", lambda dialog: (events.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: events.append(f"error {error}"))
    page.on("request", lambda request: events.append(f"request {request.url}"))
    attribute, style = THEMES[theme]
    page.set_content(f"<!doctype html><style>{style}</style><body {attribute}>{'<p>'.join(pieces)}</body>")
    return page, events


def test_sixty_payloads_run_nothing(chromium: Any) -> None:
    entries = [Entry((f"{number}", payload), f"r{number} {payload[:80]}") for number, payload in enumerate(PAYLOADS)]
    snapshot = make_snapshot(entries, total=400)
    tree = draw_radix_tree(snapshot, max_nodes=200)
    record = make_record(request_id=PAYLOADS[0], prompt=PAYLOADS[1], error=PAYLOADS[3], finish_reasons=("error",))
    explained = [explain_request(record, record, snapshot), *(explain_node(snapshot, n.id) for n in snapshot.tree)]
    pieces = [tree.html, draw_block_table(snapshot).html, *(e._repr_mimebundle_()["text/html"] for e in explained)]
    page, events = page_of(chromium, "light", *pieces)
    page.wait_for_timeout(200)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert page.locator("svg").count() == 2
    assert page.evaluate("document.body.textContent").count("<script>alert(1)</script>") >= 3
    page.close()


def test_a_standalone_svg_runs_nothing(chromium: Any, tmp_path: Any) -> None:
    entries = [Entry((f"{number}", payload)) for number, payload in enumerate(PAYLOADS)]
    saved = draw_radix_tree(make_snapshot(entries, total=400), max_nodes=200).save(tmp_path / "tree.svg")
    page, events = chromium.new_page(), []
    page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
    page.goto(saved.as_uri())
    assert events == []
    assert page.evaluate("document.documentElement.tagName") == "svg"
    page.close()


@pytest.mark.parametrize("theme", THEMES)
def test_text_fits_and_is_readable(chromium: Any, theme: str) -> None:
    busy = busy_snapshot()
    drawings = [draw_radix_tree(busy), draw_radix_tree(busy, request="r12", max_nodes=6), draw_block_table(busy)]
    page, events = page_of(chromium, theme, *(drawing.html for drawing in drawings))
    assert events == []
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(CONTRAST) >= 4.5
    page.close()


def test_a_dark_page_is_dark(chromium: Any) -> None:
    page, _ = page_of(chromium, "dark", draw_block_table(busy_snapshot()).html)
    ground = page.evaluate("getComputedStyle(document.querySelector('div.yaie-drawing')).backgroundColor")
    assert ground == "rgb(17, 17, 17)"
    assert page.evaluate("getComputedStyle(document.querySelector('.f-shared')).fill") == "rgb(232, 200, 250)"
    page.close()


def test_without_styles_the_text_stands_in_for_the_picture(chromium: Any) -> None:
    """A notebook that is not trusted yet loses style sheets and SVG, but not the text inside."""
    page, _ = page_of(chromium, "light", draw_radix_tree(busy_snapshot()).html)
    assert page.locator("svg").is_visible()
    assert not page.locator("pre").is_visible()
    page.evaluate("document.querySelectorAll('style').forEach(style => style.remove())")
    assert not page.locator("svg").is_visible()
    assert page.locator("pre").is_visible()
    page.close()


@pytest.mark.parametrize(("scheme", "expected"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 17, 17)")])
def test_a_saved_svg_follows_the_system(chromium: Any, tmp_path: Any, scheme: str, expected: str) -> None:
    saved = draw_block_table(busy_snapshot()).save(tmp_path / "blocks.svg")
    page = chromium.new_page(color_scheme=scheme)
    page.goto(saved.as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('rect')).fill") == expected
    page.close()
