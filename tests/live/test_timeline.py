"""The live timeline in a browser: cursor, zoom, selection, the trace, rows by their number, hostile text, looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.looks import check_looks, height
from tests.live.page import Harness, push, settle
from tests.widgets.payloads import PAYLOADS
from tests.widgets.test_trace import check_trace

pytestmark = pytest.mark.browser
LEFT, RIGHT = 150, 98


def sight(page: Any) -> tuple[int, int]:
    """The first and the last step in sight, by the ticks and the number of steps that the header names."""
    words = page.locator(".y-meta").first.inner_text().split(" · ")[1].replace(",", "").split()
    return int(words[1]), int(words[-1])


def cursor(page: Any) -> int:
    return int(page.locator(".y-tl-axis").get_attribute("aria-valuenow"))


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        settle(page)


def place(page: Any, step: int) -> tuple[float, float]:
    """The middle of a step's column, in the middle of the rows."""
    first, last = sight(page)
    box = page.locator(".y-tl-scroll").bounding_box()
    each = (box["width"] - LEFT - RIGHT) / (last - first + 1)
    return box["x"] + LEFT + (step - first + 0.5) * each, box["y"] + 30


@pytest.mark.parametrize("name", ["empty", "small", "busy", "full"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [560, 900])
def test_it_is_readable_and_whole(harness: Harness, recording: Recordings, name: str, theme: str, width: int) -> None:
    page = harness("timeline", recording(name), theme, width)
    check_looks(page)
    if name == "empty":
        assert page.get_by_text("No step recorded yet. Run a %%generate cell.").is_visible()
        return
    page.get_by_label("Show all steps").click()
    settle(page)
    check_looks(page)


def test_keys_move_the_cursor_and_zoom(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    last = recording("busy")["steps"][-1]["step"]
    assert sight(page) == (last - 59, last) and cursor(page) == last
    page.locator(".y-tl-axis").focus()
    press(page, "ArrowLeft", "Shift+ArrowLeft")
    assert cursor(page) == last - 11
    press(page, "+")
    first, end = sight(page)
    assert end - first == 29 and first <= last - 11 <= end
    press(page, "0")
    assert sight(page) == (1, last)
    press(page, "Home")
    assert cursor(page) == 1
    press(page, "-", "End")
    assert cursor(page) == last and page.errors == []


def test_the_bar_marks_what_is_in_sight(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    bracket = page.locator(".y-sight")
    inside = (900 - LEFT - RIGHT) * 60 / len(recording("busy")["steps"])
    assert abs(bracket.bounding_box()["width"] - inside) <= 4
    page.get_by_label("Show all steps").click()
    settle(page)
    settle(page)
    assert bracket.get_attribute("d") is None and page.errors == []


def test_the_bracket_of_the_bar_moves_what_is_in_sight(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    last, page = made["steps"][-1]["step"], harness("timeline", made)
    said = page.locator(".y-tl-read .y-one")
    assert said.inner_text() == f"60 of {last} steps: drag the bracket above or use \u2190 \u2192 on it; 0 shows all"
    assert page.locator(".y-tl-fit").text_content() == f"60 of {last}"
    thumb = page.get_by_role("slider", name="Steps in sight")
    box = thumb.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 100 - 20.2 * (900 - LEFT - RIGHT) / last, box["y"] + 10)
    page.mouse.up()
    settle(page)
    assert sight(page) == (last - 79, last - 20) and cursor(page) == last - 20
    page.mouse.move(box["x"], box["y"] + 10)
    assert sight(page) == (last - 79, last - 20)
    thumb.focus()
    press(page, "ArrowRight")
    assert sight(page) == (last - 69, last - 10) and cursor(page) == last - 20
    assert thumb.get_attribute("aria-valuetext") == f"steps {last - 69} to {last - 10} of {last}"
    press(page, "Home")
    assert sight(page) == (1, 60) and cursor(page) == 60
    press(page, "End")
    assert sight(page) == (last - 59, last) and cursor(page) == 60
    page.get_by_label("Show all steps").click()
    settle(page)
    settle(page)
    assert thumb.count() == 0 and said.inner_text() == "" and page.errors == []


def test_the_wheel_zooms_around_the_pointer_and_only_with_control(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    before = sight(page)
    step = before[0] + 20
    x, y = place(page, step)
    page.mouse.move(x, y)
    page.evaluate("window.stopped = []; addEventListener('wheel', event => stopped.push(event.defaultPrevented))")
    page.mouse.wheel(0, -100)
    settle(page)
    assert sight(page) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.wait_for_function("stopped.length === 2")
    settle(page)
    page.keyboard.up("Control")
    after = sight(page)
    assert page.evaluate("stopped") == [False, True]
    assert after[1] - after[0] < before[1] - before[0]
    assert abs(place(page, step)[0] - x) <= (900 - LEFT - RIGHT) / (after[1] - after[0] + 1)


def test_two_fingers_zoom(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    first, last = sight(page)
    x, y = place(page, first + 30)
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *places: float) -> None:
        points = [{"x": place, "y": y, "id": number} for number, place in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        settle(page)

    fingers("touchStart", x - 20, x + 20)
    for spread in (30, 45, 60, 80):
        fingers("touchMove", x - spread, x + spread)
    fingers("touchEnd")
    begin, end = sight(page)
    assert end - begin < (last - first) * 0.6 and begin <= first + 30 <= end
    fingers("touchStart", x - 80, x + 80)
    for spread in (60, 40, 25, 15, 10):
        fingers("touchMove", x - spread, x + spread)
    fingers("touchEnd")
    assert sight(page)[1] - sight(page)[0] > end - begin and page.errors == []


def test_dragging_moves_the_cursor(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    first, _ = sight(page)
    page.mouse.move(*place(page, first + 5))
    page.mouse.down()
    settle(page)
    assert cursor(page) == first + 5
    page.mouse.move(*place(page, first + 30), steps=4)
    settle(page)
    page.mouse.up()
    assert cursor(page) == first + 30
    page.mouse.move(*place(page, first + 3))
    settle(page)
    assert cursor(page) == first + 30


def test_the_panel_is_the_step_at_the_cursor(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    page = harness("timeline", made)
    chosen = max(made["steps"], key=lambda step: len(step.get("preempted", ())) * 100 + len(step["batch"]))
    page.get_by_label("Show all steps").click()
    settle(page)
    page.mouse.click(*place(page, chosen["step"]))
    settle(page)
    panel = page.locator(".y-tl-panel")
    assert f"Step {chosen['step']}\n" in panel.inner_text()
    assert f"{chosen['prefill'] + chosen['decode']} of 64 tokens" in panel.inner_text()
    rows = page.locator(".y-tl-batch tbody tr").all_inner_texts()
    shown = {tuple(cell.strip() for cell in row.split("\t")[:2]) for row in rows}
    works = {(label, work) for label, work, _ in chosen["batch"]}
    lost = {label for label, state in chosen.get("left", []) if state == "waiting"} | set(chosen.get("preempted", []))
    assert shown == works | {(label, "preempted") for label in lost - {label for label, _ in works}}
    for word, key in (("Allocated", "allocated"), ("Freed", "freed"), ("Evicted", "evicted"), ("Copied", "copied")):
        line = panel.locator("tr", has_text=word).first
        assert line.locator("td").last.inner_text() == str(len(chosen.get(key, [])))
    assert panel.bounding_box()["height"] == 232


def test_a_name_selects_its_request(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("busy"))
    names = page.get_by_role("option")
    names.nth(2).click()
    settle(page)
    assert [each.get_attribute("aria-selected") for each in names.all()].index("true") == 2
    assert page.locator(".y-tl-picked").is_visible()
    assert names.nth(2).locator(".y-tl-id").inner_text() in page.locator(".y-tl-read").inner_text()
    press(page, "ArrowDown", "Enter")
    assert names.nth(3).get_attribute("aria-selected") == "true"
    press(page, "Enter")
    assert not page.locator(".y-tl-picked").is_visible()
    # One tab stop for all names.
    assert page.locator(".y-tl-name[tabindex='0']").count() == 1


def test_new_steps_follow_the_newest_only(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    steps, made["steps"] = made["steps"], made["steps"][:70]
    page = harness("timeline", made)
    push(page, {"kind": "steps", "seq": 2, "delta": {"steps": steps[70:75]}})
    assert cursor(page) == 75 and sight(page) == (16, 75)
    page.mouse.click(*place(page, 40))
    settle(page)
    push(page, {"kind": "steps", "seq": 3, "delta": {"steps": steps[75:]}})
    assert cursor(page) == 40 and sight(page) == (16, 75)
    page.locator(".y-tl-axis").focus()
    press(page, "End")
    assert cursor(page) == steps[-1]["step"] == sight(page)[1]


def test_its_height_stays_while_steps_come(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    steps, made["steps"] = made["steps"], made["steps"][:1]
    page = harness("timeline", made)
    heights = {height(page)}
    for seq, at in enumerate(range(1, len(steps), 5), 2):
        push(page, {"kind": "steps", "seq": seq, "delta": {"steps": steps[at : at + 5]}})
        heights.add(height(page))
    assert len(heights) == 1 and page.errors == []


def test_rows_by_their_number(harness: Harness, recording: Recordings) -> None:
    """A few rows with text, more with names alone, many without."""
    page = harness("timeline", recording("small"))
    assert page.locator(".y-tl-name").first.bounding_box()["height"] == 20
    assert page.locator(".y-tl-text").first.inner_text()
    page = harness("timeline", recording("busy"))
    page.get_by_label("Show all steps").click()
    settle(page)
    assert page.locator(".y-tl-name").count() == 13
    assert page.locator(".y-tl-name").first.bounding_box()["height"] == 16
    page = harness("timeline", recording("full"))
    page.get_by_label("Show all steps").click()
    settle(page)
    assert page.locator(".y-tl-name").count() == 0
    assert page.locator(".y-tl-scroll").bounding_box()["height"] == 480
    assert page.locator(".y-tl-plot").get_attribute("aria-label").startswith("Scheduler timeline: 200 requests")
    page.mouse.move(*place(page, 300))
    settle(page)
    assert page.locator(".y-tl-read").inner_text().startswith("req-")


def test_save_trace_gives_a_file_that_perfetto_opens(harness: Harness, recording: Recordings, tmp_path: Path) -> None:
    made = recording("busy")
    page = harness("timeline", made)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save all recorded steps").click()
    assert download.value.suggested_filename == f"yaie-trace-tiny-step-{made['steps'][-1]['step']}.json"
    trace = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    events = check_trace(trace)
    forwards = [event for event in events if event["name"] == "forward"]
    assert [event["args"]["step"] for event in forwards] == [step["step"] for step in made["steps"]]
    assert "https://ui.perfetto.dev" in page.locator(".y-tl-read").inner_text()


def hostile(made: dict[str, Any]) -> dict[str, Any]:
    """Sixty requests whose ids and texts are the payloads, ten in each of six steps."""
    steps = []
    for at in range(0, len(PAYLOADS), 10):
        labels = [payload[:300] for payload in PAYLOADS[at : at + 10]]
        batch = [[label, "prefill", 4] for label in labels]
        tables = [[label, 0, [at + place], 4] for place, label in enumerate(labels)]
        admitted = [[label, 0] for label in labels]
        one = {"step": at // 10 + 1, "at": 100 + at, "prefill": 40, "decode": 0, "batch": batch, "ms": [1, 2, 3, 4]}
        steps.append({**one, "arrived": labels, "admitted": admitted, "tables": tables, "preempted": labels[:1]})
    unknown = dict.fromkeys(("finish_reason", "stop_reason", "error", "num_cached_tokens", "queue_s"))
    facts = {"state": "decode", "num_prompt_tokens": 4, "num_output_tokens": 1, "submitted_at": 99.0, **unknown}
    requests = {payload[:300]: {"text": payload[:200], **facts} for payload in PAYLOADS}
    return {**made, "steps": steps, "requests": requests}


def test_sixty_payloads_run_nothing(harness: Harness, recording: Recordings) -> None:
    made = hostile(recording("empty"))
    steps = made["steps"]
    page = harness("timeline", {**made, "steps": steps[:3]})
    push(page, {"kind": "steps", "seq": 2, "delta": {"steps": steps[3:], "requests": made["requests"]}})
    for name in page.get_by_role("option").all()[:12]:
        name.click()
        name.hover()
        settle(page)
    page.wait_for_timeout(200)
    assert page.errors == []
    assert page.locator(".yaie").locator("script, iframe, img, a, foreignObject, image, use").count() == 0
    text = page.locator(".yaie").evaluate("node => node.textContent")
    assert text.count("<script>alert(1)</script>") >= 3
    # What turns the direction of text or hides is written out.
    assert not any(char in text for char in "\u202e\u2066\u200b\ufeff")


def test_the_header_says_that_the_engine_is_gone(harness: Harness, recording: Recordings) -> None:
    page = harness("timeline", recording("small"))
    push(page, {"kind": "steps", "seq": 2, "delta": {"engine": {"state": "failed"}}})
    last = recording("small")["steps"][-1]["step"]
    assert page.get_by_text(f"Engine failed at step {last}").is_visible()
    assert page.locator(".y-tl-name").count() == 3
