"""Findings in a real browser: nothing runs, nothing is cut off, and text is readable in both themes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from yaie_widgets.insights import Insights

from .drawn import THEMES, page_of
from .payloads import PAYLOADS
from .runs import HEAD, asked, config, insights, step

pytestmark = pytest.mark.browser
# The smallest contrast of any text in the frame on the frame's ground.
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const painted = (...colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const linear = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const frame = document.querySelector('.insights'), ground = getComputedStyle(frame).backgroundColor;
  return Math.min(...[...frame.querySelectorAll('div, span, b')].map(each => {
    const pair = [painted(ground), painted(ground, getComputedStyle(each).color)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  }));
}"""
# What reaches out of the frame, or is wider than its own box.
CUT = """() => {
  const frame = document.querySelector('.insights').getBoundingClientRect();
  return [...document.querySelectorAll('.insights *')].filter(each => {
    const box = each.getBoundingClientRect();
    return box.right > frame.right + 0.5 || each.scrollWidth > each.clientWidth + 1 && each.clientWidth;
  }).map(each => each.textContent.slice(0, 60));
}"""


def busy() -> Insights:
    """Findings of every severity, with prompts that part and one without data."""
    steps = [step(n, ("a", "prefill", 15)) for n in (1, 2, 3, 4)]
    steps.append(replace(step(5, ("b", "decode", 1)), preempted=("b",)))
    prompts = [replace(asked(f"req-{n}", (*HEAD, n, 2), n, n), prompt="Same " * 40 + "x" * n * 90) for n in (1, 2, 3)]
    found = insights(prompts, steps, settings=config(max_num_batched_tokens=3))
    assert {finding.mark for finding in found.findings} == {"high", "medium", "info", "no data"}
    return found


def html_of(found: Insights) -> str:
    return found._repr_mimebundle_()["text/html"]


def test_sixty_payloads_run_nothing(browser: Any) -> None:
    steps = [step(n, ("a", "prefill", 15)) for n in (1, 2)]
    pieces = []
    for payload in PAYLOADS:
        pair = [
            replace(asked(f"{n} {payload[:60]}", (*HEAD, n), n, n), prompt=f"{payload}{n}{payload}") for n in (1, 2)
        ]
        pieces.append(html_of(insights(pair, steps)))
    page, events = page_of(browser, "light", *pieces)
    page.wait_for_timeout(200)
    assert events == []
    assert page.locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    assert "<script>alert(1)</script>" in page.evaluate("document.body.textContent")
    page.close()


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_and_whole(browser: Any, theme: str) -> None:
    page, events = page_of(browser, theme, html_of(busy()))
    assert events == []
    assert page.evaluate(CONTRAST) >= 4.5
    for width in (1100, 700, 420):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate(CUT) == [], width
    page.close()


def test_figures_stand_beside_the_words_or_below_them(browser: Any) -> None:
    page, _ = page_of(browser, "light", html_of(busy()))
    tops = "[...document.querySelector('.finding').children].map(each => each.getBoundingClientRect().top)"
    assert len(set(page.evaluate(tops))) == 1
    page.set_viewport_size({"width": 500, "height": 700})
    mark, words, figures = page.evaluate(tops)
    assert mark == words < figures
    page.close()
