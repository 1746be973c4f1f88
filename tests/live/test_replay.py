"""The flight recorder in a browser: one cursor for three views, keys, gaps, engines that are gone, hostile texts."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.looks import check_looks
from tests.live.page import Harness, push, settle
from tests.widgets.payloads import PAYLOADS
from yaie_widgets.live.packing import packed
from yaie_widgets.live.recorded import snapshot_of, tape_of

pytestmark = pytest.mark.browser


def number(text: str) -> int:
    """The first number in a text."""
    found = re.search(r"\d[\d,]*", text)
    assert found is not None, text
    return int(found[0].replace(",", ""))


def steps_shown(page: Any) -> list[int]:
    """The step that the bar and the timeline's panel say they show."""
    bar = page.locator(".y-where b").inner_text()
    panel = page.locator("[aria-label='Scheduler timeline']").get_by_text(re.compile(r"^Step \d")).first.inner_text()
    return [number(bar), number(panel)]


def counts_shown(page: Any) -> list[int]:
    """Free, cached, held and shared blocks in the legend of the block map."""
    text = page.locator("[aria-label='KV blocks']").first.inner_text()
    return [int(re.search(rf"{word}[^\d]*?\n?\s*(\d+)", text)[1]) for word in ("Free", "Cached, evictable")]  # type: ignore[index]


def cut_at(recording: dict[str, Any], step: int) -> dict[str, Any]:
    """The recording as it was after a step."""
    return {**recording, "steps": [each for each in recording["steps"] if each["step"] <= step]}


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        settle(page)


@pytest.mark.parametrize("name", ["empty", "busy", "full"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_readable_and_whole(harness: Harness, recording: Recordings, name: str, theme: str) -> None:
    page = harness("replay", recording(name), theme)
    check_looks(page)
    if name != "empty":  # in the middle the batch is larger than its panel
        page.locator(".y-slider").focus()
        press(page, "Home", *["Shift+ArrowRight"] * 5)
        check_looks(page)
        panel, row = page.locator(".y-tl-panel").bounding_box(), page.locator(".y-tl-list").bounding_box()
        assert row["y"] + row["height"] <= panel["y"] + panel["height"]
    assert page.errors == []


def test_one_slider_drives_all_three_there_and_back(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    page = harness("replay", run)
    page.locator(".y-slider").focus()
    last = run["steps"][-1]["step"]
    assert steps_shown(page) == [last] * 2
    for keys, step in (
        (["Home"], 1),
        (["ArrowRight"] * 3, 4),
        (["Shift+ArrowRight"] * 4, 44),
        (["ArrowLeft"] * 2, 42),
        (["End"], last),
        (["Shift+ArrowLeft"], last - 10),
    ):
        press(page, *keys)
        assert steps_shown(page) == [step] * 2
        snapshot = snapshot_of(cut_at(run, step), tape_of(cut_at(run, step)))
        assert counts_shown(page) == [snapshot.blocks.free, snapshot.blocks.cached]
        nodes = page.locator("[aria-label='Radix tree'] .y-meta").first.inner_text()
        assert f"{sum(1 for node in snapshot.tree if node.num_tokens)} node" in nodes
    assert page.errors == []


def test_transport_plays_and_pauses(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("small"))
    page.get_by_label("First step").click()
    page.get_by_label("Play", exact=True).click()
    page.wait_for_function("() => /Step [3-9]/.test(document.querySelector('.y-where b').textContent)")
    page.get_by_label("Pause").click()
    settle(page)
    stopped = steps_shown(page)
    page.wait_for_timeout(400)
    assert steps_shown(page) == stopped
    page.get_by_label("Newest step").click()
    settle(page)
    assert "live" in page.locator(".y-where").inner_text()


def test_dragging_over_the_overview_scrubs(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("busy"))
    box = page.locator(".y-overview").bounding_box()
    left, wide = box["x"] + 150, box["width"] - 248
    page.mouse.move(left + 1, box["y"] + 20)
    page.mouse.down()
    settle(page)
    assert steps_shown(page) == [1, 1]
    page.mouse.move(left + wide / 2, box["y"] + 20)
    settle(page)
    assert abs(steps_shown(page)[0] - 48) <= 1
    page.mouse.up()


def test_new_steps_move_a_cursor_at_the_end_only(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    first, rest = cut_at(run, 50), [each for each in run["steps"] if each["step"] > 50]
    page = harness("replay", first)
    message = {"kind": "steps", "delta": {"steps": rest[:5], "requests": {}, "vocab": {}, "engine": {}}}
    push(page, {**message, "seq": 2})
    assert steps_shown(page) == [55, 55]
    page.locator(".y-slider").focus()
    press(page, "ArrowLeft")
    message["delta"]["steps"] = rest[5:10]  # type: ignore[index]
    push(page, {**message, "seq": 3})
    assert steps_shown(page) == [54, 54]
    assert "of 60" in page.locator(".y-where").inner_text()


def test_a_gap_asks_for_the_recording(harness: Harness, recording: Recordings) -> None:
    run = recording("small")
    page = harness("replay", cut_at(run, 5))
    page.evaluate("window.sent.length = 0")
    push(page, {"kind": "steps", "seq": 7, "delta": {"steps": [], "requests": {}, "vocab": {}, "engine": {}}})
    page.wait_for_timeout(1100)
    push(page, {"kind": "steps", "seq": 8, "delta": {"steps": [], "requests": {}, "vocab": {}, "engine": {}}})
    assert [message["kind"] for message in page.py_messages()][-1] == "ready"
    push(page, {"kind": "recording", "seq": 9, "recording": run})
    assert steps_shown(page) == [13, 13]


def test_a_large_recording_comes_packed(harness: Harness, recording: Recordings) -> None:
    message = packed({"kind": "recording", "recording": recording("full")})
    assert "recording" not in message
    page = harness("replay", message)
    page.wait_for_function("() => document.querySelector('.y-where')?.textContent.startsWith('Step 629 of 629')")
    push(page, {**packed({"kind": "recording", "recording": recording("busy"), "pad": "x" * 200_000}), "seq": 2})
    page.wait_for_function("() => document.querySelector('.y-where').textContent.startsWith('Step 96 of 96')")


@pytest.mark.parametrize(
    ("state", "words"),
    [("closed", "Engine unloaded at step 13"), ("failed", "Engine failed at step 13"), ("recorded", "Recorded run")],
)
def test_an_engine_that_is_gone_is_named(harness: Harness, recording: Recordings, state: str, words: str) -> None:
    page = harness("replay", recording("small"))
    push(
        page,
        {"kind": "steps", "seq": 2, "delta": {"steps": [], "requests": {}, "vocab": {}, "engine": {"state": state}}},
    )
    assert page.locator(".y-state").first.inner_text() == words
    assert steps_shown(page) == [13, 13]


def test_a_lost_kernel_is_named_and_the_values_stay(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("small"))
    page.evaluate("window.model.tell('comm_live_update')")
    settle(page)
    assert page.locator(".y-state").first.inner_text() == "Connection to the kernel lost at step 13"
    page.locator(".y-slider").focus()
    press(page, "Home")
    assert steps_shown(page) == [1, 1]


def test_a_recording_of_another_engine_takes_its_place(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("busy"))
    page.locator(".y-slider").focus()
    press(page, "Home")
    push(page, {"kind": "recording", "seq": 2, "recording": recording("small")})
    assert steps_shown(page) == [13, 13]


def test_the_twin_is_hidden_while_the_view_lives(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("small"))
    key = page.evaluate("window.model.get('key')")
    page.evaluate("key => document.body.insertAdjacentHTML('beforeend', `<p data-yaie-twin='${key}'>twin</p>`)", key)
    assert not page.get_by_text("twin", exact=True).is_visible()
    page.evaluate("window.unmount()")
    assert page.get_by_text("twin", exact=True).is_visible()
    assert page.py_messages()[-1]["kind"] == "gone"


def test_a_page_out_of_sight_says_so(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("small"))
    assert page.py_messages()[-1]["visible"] is True
    page.evaluate("document.querySelector('#view').style.display = 'none'")
    page.wait_for_function("() => window.sent.at(-1).visible === false")


def hostile(recording: dict[str, Any], payloads: list[str]) -> dict[str, Any]:
    """The recording with payloads for every text in it."""
    text = copy.deepcopy(recording)
    names = {label: f"{payloads[i % len(payloads)][:60]}{i}" for i, label in enumerate(text["requests"])}
    text["vocab"] = {key: payloads[i % len(payloads)] for i, key in enumerate(text["vocab"])}
    text["engine"] |= {"name": payloads[0], "device": payloads[1]}
    text["requests"] = {
        names[label]: {**facts, "text": payloads[i % len(payloads)], "error": payloads[-1]}
        for i, (label, facts) in enumerate(text["requests"].items())
    }
    for step in text["steps"]:
        for key in ("batch", "admitted", "left", "tables"):
            step[key] = [[names.get(entry[0], entry[0]), *entry[1:]] for entry in step.get(key, [])]
        for key in ("arrived", "preempted"):
            step[key] = [names.get(label, label) for label in step.get(key, [])]
        step["nodes"] = [[*node[:2], payloads[2] if node[2] else "", *node[3:]] for node in step.get("nodes", [])]
    return text


@pytest.mark.parametrize("start", range(0, len(PAYLOADS), 20))
def test_payloads_run_nothing(harness: Harness, recording: Recordings, start: int) -> None:
    payloads = [*PAYLOADS[start : start + 20], PAYLOADS[0], PAYLOADS[1]]
    page = harness("replay", hostile(recording("busy"), payloads))
    page.locator(".y-slider").focus()
    press(page, "Home", *["Shift+ArrowRight"] * 9, "End")
    for row in page.locator("[role=treeitem]").all()[:6]:
        row.click()
    page.wait_for_timeout(100)
    assert page.errors == []
    assert page.locator("#view script, #view iframe, #view img, #view a[href], #view object, #view embed").count() == 0
