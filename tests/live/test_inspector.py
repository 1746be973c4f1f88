"""The token inspector in a browser: it shows what its static form shows, listens to mouse and keys, and branches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.answers import long_answer, made, plain, state, told
from tests.live.looks import CONTRAST, CUT, height
from tests.live.page import Harness, push, settle
from yaie_engine import Logprob
from yaie_widgets.inspection import Answer, read_rows, twin_bundle
from yaie_widgets.live.bundle import MAX_BYTES, css, esm

pytestmark = pytest.mark.browser
SURE = Logprob(-2.0, 1, "")
PIECES = ["You", " are", " here", "A", " cat", "\n", " sat", " <b>", " on", " it", "."]
# Text and marks of everything that both forms show.
READ = """root => {
  const text = node => node.textContent.replace(/Branch$/, '');
  const all = (selector, read) => [...root.querySelectorAll(selector)].map(read);
  const kinds = node => [...node.classList].filter(name => name !== 'sel' && name !== 'y-ins-tok').sort().join(' ');
  return {
    title: (root.querySelector('.y-title') ?? root.querySelector('.y-ins-hd b')).textContent,
    counts: (root.querySelector('.y-head .y-meta') ?? root.querySelector('.y-ins-hd .y-ins-meta')).textContent,
    captions: all('.y-ins-cap', text),
    tokens: all('.y-ins-tok', node => [text(node), kinds(node), getComputedStyle(node).backgroundColor]),
    gaps: all('.y-ins-gap', text),
    ticks: all('.y-ins-tick', node => node.dataset.b + (node.classList.contains('fork') ? ' fork' : '')),
    legend: all('.y-ins-legend:not([hidden])', text),
    notes: all('.y-ins-note', text),
    place: all('.y-ins-ptop', text),
    figures: all('.y-ins-kv > *', text),
    bars: all('.y-ins-alt', node => [text(node.children[0]), text(node.children[2]), text(node.children[3]),
      node.querySelector('.y-ins-bar > i').style.width, node.classList.contains('on')]),
  };
}"""

# Tokens that lie on top of each other: a line is laid out before it exists.
OVERLAPS = """() => [...document.querySelectorAll('.y-ins-line')].flatMap(line => {
  const boxes = [...line.querySelectorAll('.y-ins-tok')].map(one => one.getBoundingClientRect());
  return boxes.slice(1).filter((box, at) => box.left < boxes[at].right - 0.5);
}).length"""


def read(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.locator(".y-ins").first.evaluate(READ)
    return found


def twin_page(browser: Any, answer: Answer, colour: str) -> Any:
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    html = twin_bundle([answer], colour)["text/html"]
    page.set_content(f'<!doctype html><meta charset="utf-8"><body data-jp-theme-light="true">{html}')
    return page


@pytest.mark.parametrize("colour", ["probability", "entropy"])
@pytest.mark.parametrize("which", ["story", "branch", "plain", "escaped", "shortened", "scored"])
def test_the_static_form_equals_the_live_view(harness: Harness, browser: Any, which: str, colour: str) -> None:
    answers = {
        "story": lambda: told().answers[0],
        "branch": lambda: told().answers[2],
        "plain": plain,
        "escaped": lambda: made(PIECES),
        "shortened": lambda: made(PIECES * 12, prompt=100, cached=33),
        "scored": lambda: made(PIECES, prompt_rows=read_rows([None, {1: SURE}, {2: SURE, 4: SURE}], None)),
    }
    answer = answers[which]()
    live = harness("inspector", state(answer, colour=colour))
    twin = twin_page(browser, answer, colour)
    assert read(live) == read(twin)
    assert live.errors == []
    twin.close()


def panel_token(page: Any) -> str:
    text: str = page.locator(".y-ins-ptop > b").inner_text()
    return text


def test_pointer_shows_and_click_pins(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    least = panel_token(page)
    page.locator('[data-at="4"]').hover()
    assert panel_token(page) == "·cat"
    page.locator(".y-ins-legend").hover()
    assert panel_token(page) == least
    page.locator('[data-at="6"]').click()
    page.locator('[data-at="4"]').hover()
    assert panel_token(page) == "·sat" and "pinned" in page.locator(".y-ins-ptop").inner_text()
    page.locator('[data-at="1"]').click()
    assert panel_token(page) == "·are" and page.locator(".y-ins-branch").count() == 0
    page.keyboard.press("Escape")
    page.locator(".y-ins-legend").hover()
    assert panel_token(page) == least


def test_keys_move_through_the_tokens_with_one_tab_stop(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    box = page.locator('[role="listbox"][aria-label="Output tokens"]')
    box.focus()
    page.keyboard.press("Home")
    assert panel_token(page) == "A"
    page.keyboard.press("ArrowRight")
    assert panel_token(page) == "·cat"
    active = box.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowDown")  # the line ends with the line break
    assert panel_token(page) in ("·sat", "·<b>", "·on")
    page.keyboard.press("End")
    assert panel_token(page) == "."
    page.keyboard.press("ArrowRight")
    assert panel_token(page) == "."
    assert page.locator(".y-ins-tok[tabindex]").count() == 0 and page.locator(".y-ins-tok.sel").count() == 1


def test_a_key_goes_into_the_gap_of_a_long_prompt(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES * 12, prompt=100)))
    box = page.locator('[role="listbox"][aria-label="Prompt tokens"]')
    assert box.locator(".y-ins-gap").inner_text() == "… 72 more …"
    box.focus()
    page.keyboard.press("Home")
    for _ in range(14):
        page.keyboard.press("ArrowRight")
    assert page.locator(".y-ins-ptop > span").inner_text() == "prompt token 15 of 100"
    assert box.locator(".y-ins-gap").count() == 0 and page.locator('[data-at="14"].sel').is_visible()


def branch_messages(page: Any) -> list[Any]:
    return [
        (each["answer"], each["position"], each["token"]) for each in page.py_messages() if each["kind"] == "branch"
    ]


def test_click_and_key_ask_for_a_branch(harness: Harness) -> None:
    answer = made(PIECES)
    page = harness("inspector", state(answer))
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    row = answer.row(6)
    assert row is not None
    others = [each.token_id for each in row.candidates if each.token_id != 6]
    assert branch_messages(page) == [(0, 3, others[0])]
    page.locator('[role="listbox"]').nth(1).focus()
    page.keyboard.press("b")
    assert branch_messages(page)[1:] == [(0, 3, others[0])]


def test_a_branch_arrives_grows_and_ends(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    answer = made(PIECES, running=True, name="req-2").to_dict()
    answer |= {"origin": {"parent": 0, "position": 3}, "reuse": "branch at token 4: 6 of 7 tokens cached"}
    first = {**answer, "output": answer["output"][:4], "rows": answer["rows"][:4]}
    push(page, {"kind": "answer", "number": 1, "answer": first, "seq": 2})
    assert page.locator('[role="tab"]').count() == 2
    assert page.locator('[role="tab"][aria-selected="true"]').inner_text() == "Branch 1: token 4 “·sat” · 4 tokens"
    assert page.locator(".y-ins-tick.fork").count() == 1
    assert "6 of 7 tokens cached" in page.locator(".y-ins-tabs").inner_text()
    grown = {"kind": "grown", "number": 1, "from": 4, "output": answer["output"][4:], "rows": answer["rows"][4:]}
    push(page, {**grown, "vocab": {}, "counts": "more", "seq": 3})
    whole = made(PIECES, running=True).output
    assert page.locator('[aria-label="Output tokens"] .y-ins-tok').count() == len(whole)
    page.get_by_role("button", name="Stop").click()
    assert page.py_messages()[-1]["kind"] == "stop" and page.py_messages()[-1]["answer"] == 1
    push(page, {"kind": "answer", "number": 1, "answer": {**answer, "running": False}, "seq": 4})
    assert page.get_by_role("button", name="Stop").count() == 0
    assert page.locator('[role="status"].y-hidden').inner_text() == f"finished, {len(whole)} tokens"
    page.locator('[role="tab"]').first.click()
    assert page.locator(".y-ins-tick.fork").count() == 0 and page.errors == []


def test_a_missing_piece_is_asked_for(harness: Harness) -> None:
    answer = made(PIECES, running=True)
    page = harness("inspector", state(answer))
    grown = {"kind": "grown", "number": 0, "from": 99, "output": [4], "rows": None, "vocab": {}, "seq": 2}
    push(page, grown)
    assert page.py_messages()[-1]["kind"] == "ready" and page.py_messages()[-1]["seq"] == -1
    push(page, {**state(made(PIECES)), "seq": 3})
    assert "stop" in page.locator(".y-head .y-meta").inner_text()


def test_a_refusal_is_said_in_one_line(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    push(page, {"kind": "refused", "text": "Not branched: its engine was unloaded", "seq": 2})
    assert page.locator(".y-ins-say").inner_text() == "Not branched: its engine was unloaded"
    assert page.locator(".y-ins-say").bounding_box()["height"] < 36


def test_a_silent_kernel_is_said(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    assert not page.locator(".y-ins-say").is_visible()
    page.wait_for_function("document.querySelector('.y-ins-say').textContent.startsWith('The kernel is busy')")


def test_without_a_kernel_the_view_keeps_its_tokens_and_says_so(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    page.evaluate("window.model.tell('comm_live_update')")
    page.wait_for_function("document.querySelector('.y-head').textContent.includes('Connection to the kernel lost')")
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    assert page.locator(".y-ins-say").inner_text() == "Not branched: the connection to the kernel is lost"
    assert branch_messages(page) == []


def test_a_branch_of_another_page_does_not_take_over(harness: Harness) -> None:
    page = harness("inspector", state(made(PIECES)))
    page.locator('[data-at="6"]').click()
    page.locator(".y-ins-branch").first.click()
    push(page, {"kind": "refused", "text": "no", "seq": 2})
    push(page, {"kind": "answer", "number": 1, "answer": made(PIECES, name="req-9").to_dict(), "seq": 3})
    assert page.locator(".y-title").inner_text() == "Tokens of req-1"
    assert page.locator('[role="tab"]').count() == 2 and not page.locator(".y-ins-say").is_visible()


def test_ids_blocks_and_colours_are_switched(harness: Harness) -> None:
    page = harness("inspector", state(told().answers[0]))
    assert page.locator(".y-ins-tick").count() > 0
    page.get_by_role("button", name="Blocks").click()
    assert page.locator(".y-ins-tick").count() == 0
    before = page.locator(".y-ins-tok.l4").count()
    page.get_by_role("button", name="Entropy").click()
    assert "Entropy, at least" in page.locator(".y-ins-legend").inner_text()
    page.get_by_role("button", name="Probability").click()
    assert page.locator(".y-ins-tok.l4").count() == before
    page.get_by_role("button", name="IDs").click()
    assert page.evaluate(OVERLAPS) == 0


def test_a_long_text_is_made_as_it_scrolls_into_view(harness: Harness) -> None:
    page = harness("inspector", state(long_answer(10_000)))
    made_at_first = page.locator(".y-ins-tok").count()
    assert made_at_first < 800
    took = page.evaluate("""async () => {
      const scroller = document.querySelector('.y-ins-scroll'), times = [];
      for (let turn = 0; turn < 40; turn++) {
        const start = performance.now();
        scroller.scrollTop = scroller.scrollHeight * turn / 40;
        scroller.dispatchEvent(new Event('scroll'));
        scroller.getBoundingClientRect();
        times.push(performance.now() - start);
        await new Promise(done => requestAnimationFrame(done));
      }
      return times.sort((a, b) => a - b)[4];
    }""")
    assert took < 60  # ms; the best of ten turns, since the machine may be busy
    page.evaluate("document.querySelector('.y-ins-scroll').scrollTop = 1e9")
    settle(page)
    assert page.locator('[data-at="9999"]').is_visible()
    assert page.locator(".y-ins-tok").count() < 800
    box = page.locator('[aria-label="Output tokens"]')
    box.focus()
    page.keyboard.press("Home")
    assert page.locator('[data-at="400"]').is_visible() and page.locator('[data-at="400"].sel').count() == 1
    page.keyboard.press("End")
    assert page.locator('[data-at="9999"].sel').is_visible()
    page.evaluate("document.querySelector('.y-ins-scroll').scrollTop = 0")
    page.get_by_text("more …").first.click()
    settle(page)
    assert page.locator('[aria-label="Prompt tokens"] .y-ins-gap').count() == 0


@pytest.mark.parametrize("width", [900, 560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_and_whole(harness: Harness, theme: str, width: int) -> None:
    ticked = made(PIECES * 6, prompt=20, cached=9)
    for answers in ([ticked], [plain()], told().answers):
        page = harness("inspector", state(*answers), theme, width)
        assert page.evaluate(CONTRAST) == [] and page.evaluate(CUT) == []
        assert page.evaluate(OVERLAPS) == 0 and page.errors == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hover_moves_nothing(harness: Harness) -> None:
    page = harness("inspector", state(told().answers[0]))
    heights = set()
    for at in (0, 1, 81, 84, 90, 120, 140):
        page.locator(f'[data-at="{at}"]').hover()
        heights.add(height(page))
    assert len(heights) == 1


def test_the_bundle_is_small() -> None:
    assert len(esm("inspector")) + len(css("inspector")) < MAX_BYTES
