"""The live view of a generation and its static form in a real browser, without a notebook."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from tests.live import generations as made
from tests.live.page import Harness, push, settle
from tests.live.runs import ANSWER, QUESTIONS
from tests.widgets.payloads import PAYLOADS
from yaie_widgets.live.bundle import css, esm
from yaie_widgets.live.generation_twin import generation_html, stacked_html

pytestmark = pytest.mark.browser
STATES = ("waiting", "prefill", "decode", "preempted", "swapped", "stop", "length", "cancelled", "error")
# Text that leaves its frame, except where it is meant to be cut or scrolled.
CUT = """() => [...document.querySelectorAll('.y-gen *')].filter(node => {
  if (!node.childNodes.length || [...node.childNodes].every(c => c.nodeType !== 3 || !c.data.trim())) return false;
  if (node.closest('.y-gen-said, .y-gen-line, .y-gen-end, .y-gen-cut, .y-gen-whole')) return false;
  if (node.closest('details:not([open]) > :not(summary)')) return false;
  const style = getComputedStyle(node);
  if (style.textOverflow === 'ellipsis' || style.overflowY === 'auto' || style.display === 'none') return false;
  const frame = document.querySelector('.y-gen').getBoundingClientRect(), box = node.getBoundingClientRect();
  return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
}).map(node => node.textContent)"""
# The smallest contrast of a text with what is painted behind it.
CONTRAST = """() => {
  const light = rgb => {
    const linear = rgb.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const painted = colours => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return light([...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255));
  };
  let smallest = 21;
  for (const node of document.querySelectorAll('.y-gen *')) {
    if (![...node.childNodes].some(c => c.nodeType === 3 && c.data.trim()) || !node.getClientRects().length) continue;
    const grounds = [];
    for (let at = node; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const pair = [painted(grounds), painted([...grounds, getComputedStyle(node).color])].sort((a, b) => b - a);
    smallest = Math.min(smallest, (pair[0] + 0.05) / (pair[1] + 0.05));
  }
  return smallest;
}"""
STATS = "all => all.map(one => one.innerText.replace(/\\s+/g, ' ').trim())"


def height(page: Any, selector: str = ".y-gen") -> float:
    return float(page.locator(selector).first.evaluate("node => node.getBoundingClientRect().height"))


def rows(seq: int, *changes: list[Any], tally: str = "") -> dict[str, Any]:
    return {"kind": "rows", "seq": seq, "rows": list(changes), "tally": tally, "total": len(changes)}


def twin(page: Any, markup: str) -> None:
    """Put a static form under the view, in the surroundings that a notebook gives it."""
    page.evaluate("text => document.body.insertAdjacentHTML('beforeend', text)", f"<div id=twin>{markup}</div>")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_state_is_readable_and_whole(harness: Harness, theme: str) -> None:
    wide = (*map(made.one, STATES), made.batch(20), made.whole(title="Batch", total=3))
    for width, contents in ((900, wide), (560, (made.one(), made.one("error"), made.batch(4)))):
        for content in contents:
            page = harness("generation", content, theme, width)
            assert page.errors == []
            assert page.evaluate(CUT) == []
            assert page.evaluate(CONTRAST) >= 4.5
            harness.close()


def test_nothing_moves_while_it_streams(harness: Harness) -> None:
    page = harness("generation", made.one("waiting"))
    before = height(page)
    boxes = "all => all.map(one => [one.offsetLeft, one.offsetTop, one.offsetWidth])"
    slots = page.locator(".y-gen-stats > div, .y-gen-head > *, .y-gen-bar").evaluate_all(boxes)
    for seq, (state, done) in enumerate((("prefill", 0), ("decode", 1), ("decode", 60), ("decode", 110)), 2):
        now = made.progress(state, QUESTIONS[6], output=done, computed=170 if state == "prefill" else None)
        fields = made.row_of("req-7", now).to_dict()
        push(page, rows(seq, [0, fields, ANSWER[max(done - 50, 0) : done]]))
        assert height(page) == before
        assert page.locator(".y-gen-stats > div, .y-gen-head > *, .y-gen-bar").evaluate_all(boxes) == slots
    assert "ended" not in page.locator(".y-gen").get_attribute("class")


def test_a_long_text_scrolls_and_sticks_to_its_end_unless_the_reader_scrolled_up(harness: Harness) -> None:
    page = harness("generation", made.one("decode", ANSWER))
    text = page.locator(".y-gen-text")
    bottom = "node => Math.round(node.scrollHeight - node.scrollTop - node.clientHeight)"
    for seq in range(2, 30):
        push(page, rows(seq, [0, {}, ANSWER]))
    assert height(page, ".y-gen-text") == 400 and text.evaluate(bottom) == 0
    text.evaluate("node => { node.scrollTop = 100; }")
    push(page, rows(30, [0, {}, ANSWER]))
    assert text.evaluate("node => node.scrollTop") == 100
    assert text.evaluate("node => node.firstChild.data") == ANSWER * 30


def test_stop_answers_at_once_and_says_when_the_kernel_hears_nothing(harness: Harness) -> None:
    page = harness("generation", made.one("decode"))
    stop, state = page.get_by_role("button", name="Stop this request"), page.locator(".y-gen-state")
    width = stop.bounding_box()["width"]
    stop.click()
    assert (stop.inner_text(), state.inner_text()) == ("Stopping", "Stopping")
    assert [m["row"] for m in page.py_messages() if m["kind"] == "stop"] == [0]
    assert stop.bounding_box()["width"] == width == 92
    stop.dispatch_event("click")
    assert len([m for m in page.py_messages() if m["kind"] == "stop"]) == 1, "once is enough"
    state.filter(has_text="Press ■ in the toolbar").wait_for()
    push(page, rows(2, [0, made.ended("req-7", QUESTIONS[6], "x" * 33, "cancelled").to_dict(), ""]))
    assert state.inner_text() == "cancelled · 33 tokens kept" and not stop.is_visible()


def test_a_stop_that_was_heard_asks_for_nothing_more(harness: Harness) -> None:
    page = harness("generation", made.one("decode"))
    page.get_by_role("button", name="Stop this request").focus()
    page.keyboard.press("Enter")
    now = made.progress("decode", QUESTIONS[6], output=120)
    push(page, rows(2, [0, made.row_of("req-7", now, stopping=True).to_dict(), ""]))
    page.wait_for_timeout(1100)
    assert page.locator(".y-gen-state").inner_text() == "Stopping"


def test_a_lost_kernel_leaves_text_and_figures(harness: Harness) -> None:
    page = harness("generation", made.one("decode"))
    text = page.locator(".y-gen-text").inner_text()
    page.evaluate("window.model.tell('comm_live_update')")
    page.locator(".y-gen-state").filter(has_text="Connection to the kernel lost").wait_for()
    assert page.locator(".y-gen-text").inner_text() == text
    assert not page.get_by_role("button", name="Stop this request").is_visible()
    assert page.locator(".y-gen-caret").evaluate("node => getComputedStyle(node).display") == "none"


def test_a_screen_reader_hears_states_and_not_every_token(harness: Harness) -> None:
    page = harness("generation", made.one("prefill"))
    said = page.locator("[role=status]")
    assert said.inner_text() == "prefill"
    push(
        page, rows(2, [0, made.row_of("req-7", made.progress("decode", QUESTIONS[6], output=9)).to_dict(), "No. The l"])
    )
    assert said.inner_text() == "decode"
    assert page.locator(".y-gen-text").get_attribute("aria-live") == "off"
    push(page, rows(3, [0, made.ended("req-7", QUESTIONS[6], "No. The l").to_dict(), ""]))
    assert said.inner_text() == "finished · stop (end of text)"


def test_the_keyboard_reaches_prompt_buttons_and_rows(harness: Harness) -> None:
    batch = made.batch(3)
    page = harness("generation", batch)
    page.keyboard.press("Tab")
    seen = []
    for _ in range(8):
        focused = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.className"
        seen.append(page.evaluate(focused))
        page.keyboard.press("Tab")
    assert [name for name in seen if name.startswith(("Copy", "Stop"))] == [
        "Copy all texts", "Stop all requests", "Stop req-1", "Stop req-2",
    ]  # fmt: skip
    assert seen.count("y-gen-row") == 3
    page.locator("summary.y-gen-row").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".y-gen-item[open] .y-gen-text").inner_text().strip() == batch["rows"][1]["text"].strip()
    before = height(page)
    push(page, rows(2, [1, {}, " more"]))
    assert page.locator(".y-gen-item[open] .y-gen-text").inner_text().rstrip().endswith("more")
    assert height(page) >= before


def test_the_keyboard_stays_in_the_view_when_a_stop_goes(harness: Harness) -> None:
    page = harness("generation", made.one("decode"))
    page.get_by_role("button", name="Stop this request").focus()
    page.keyboard.press("Enter")
    push(page, rows(2, [0, made.ended("req-7", QUESTIONS[6], "x" * 33, "cancelled").to_dict(), ""]))
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Copy the text"
    page = harness("generation", made.batch(4))
    page.get_by_role("button", name="Stop req-1").focus()
    page.keyboard.press("Enter")
    push(page, rows(2, [1, made.ended("req-1", QUESTIONS[1], "x" * 33, "cancelled").to_dict(), ""]))
    assert page.evaluate("document.activeElement.matches('.y-gen-item:nth-child(2) > summary')")


def test_a_form_that_the_page_cannot_keep_is_told(harness: Harness) -> None:
    page = harness("generation", made.one("stop"))
    push(page, {**made.one("stop"), "seq": 2, "final": {"text/plain": "the text"}})
    page.get_by_text("Not kept in the notebook").wait_for()
    assert page.locator(".y-gen-text").is_visible()


def test_a_stop_in_a_row_is_for_that_row_and_does_not_open_it(harness: Harness) -> None:
    page = harness("generation", made.batch(4))
    page.get_by_role("button", name="Stop req-1").click()
    page.get_by_role("button", name="Stop all requests").click()
    assert [m["row"] for m in page.py_messages() if m["kind"] == "stop"] == [1, None]
    assert page.locator(".y-gen-item[open]").count() == 0


def test_many_rows_stand_in_a_frame_and_running_ones_come_first_on_request(harness: Harness) -> None:
    page = harness("generation", made.batch(200))
    assert height(page, ".y-gen-list") == 600 and height(page, "summary.y-gen-row") == 46
    first = page.locator(".y-gen-item .y-gen-row > span:first-child > span:first-child")
    assert first.first.inner_text() == "req-0"
    page.get_by_role("button", name="Running first").click()
    assert first.first.inner_text() == "req-5", "the first one that failed"
    assert page.locator(".y-gen-note").inner_text().startswith("202 requests · ")


@pytest.mark.parametrize("reason", ["stop", "length", "cancelled", "error"])
def test_the_static_form_has_the_same_height_and_figures(harness: Harness, reason: str) -> None:
    for width in (900, 560):
        for text in (ANSWER[:90], ANSWER * 30):
            page = harness("generation", made.one(reason, text), width=width)
            twin(page, generation_html(made.ended("req-7", QUESTIONS[6], text, reason), text))
            assert height(page, "#twin .y-gen") == height(page)
            for part in (
                ".y-gen-stats > div",
                ".y-gen-line",
                ".y-gen-chip",
                ".y-gen-small",
                ".y-gen-state",
                ".y-gen-text",
            ):
                live, still = (page.locator(f"{where} {part}").evaluate_all(STATS) for where in ("#view", "#twin"))
                assert live == still and live, part
            harness.close()


def test_the_static_table_has_the_same_rows(harness: Harness) -> None:
    texts = [ANSWER, "two\nlines of text", "", ANSWER * 9]
    ended = [
        made.ended(f"req-{n}", QUESTIONS[n], text, ("stop", "length", "error", "cancelled")[n])
        for n, text in enumerate(texts)
    ]
    page = harness("generation", made.whole(*ended, texts=tuple(texts), title="Batch"))
    twin(page, stacked_html("Batch", ended, texts))
    for part in ("summary.y-gen-row", ".y-gen-note", ".y-gen-names", ".y-gen-legend"):
        live, still = (page.locator(f"{where} {part}").evaluate_all(STATS) for where in ("#view", "#twin"))
        assert live == still and live, part
    assert height(page, "#twin .y-gen") == height(page)
    page.locator("#twin summary.y-gen-row").nth(1).click()
    settle(page)
    assert page.locator("#twin .y-gen-item[open] .y-gen-text").inner_text().strip() == "two\nlines of text"


def test_sixty_payloads_run_nothing(harness: Harness) -> None:
    prompts = [payload.encode(errors="replace").decode() for payload in PAYLOADS]
    page = harness("generation", made.one("decode", "", prompt=prompts[0]))
    for seq, text in enumerate(prompts, 2):
        now = made.progress("decode", text, output=3)
        push(page, rows(seq, [0, {**made.row_of("req-7", now).to_dict(), "id": text[:300]}, text[:5000]]))
    many = [made.ended(text[:200], text, text[:2000]) for text in prompts]
    push(page, {**made.whole(*many, texts=tuple(text[:2000] for text in prompts)), "seq": 100})
    table = harness("generation", made.whole(*many, texts=tuple(prompts), title="<img src=x onerror=alert(1)>"))
    for row in range(0, 60, 7):
        table.locator("summary.y-gen-row").nth(row).click()
    twin(table, stacked_html("<script>alert(1)</script>", many, prompts))
    twin(table, "".join(generation_html(row, text[:3000]) for row, text in zip(many, prompts, strict=True)))
    for each in (page, table):
        each.wait_for_timeout(100)
        assert each.errors == []
        assert each.locator(".y-gen").locator("script, iframe, img, a, object, embed, [onerror], [onload]").count() == 0


def test_static_forms_are_small_and_plain() -> None:
    markup = generation_html(made.ended("req-7", QUESTIONS[6], ANSWER), ANSWER)
    print(f"one static generation: {len(markup):,} characters")
    assert len(markup) < 9_000
    assert not re.search(r"<(script|button|input|a|img)\b|\son\w+=|https?:", markup)
    assert html.escape(ANSWER) in markup
    assert len(esm("generation").encode()) < 50_000 and "https:" not in css("generation")
