"""The live dashboard in a browser: values at the cursor, pause, memory, hostile names, looks; and its Python side."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.looks import check_looks, height
from tests.live.page import Harness, push, settle
from tests.widgets.payloads import PAYLOADS
from yaie_engine import LLM, SamplingParams
from yaie_widgets.dashboard_model import StepFigures, dashboard_view
from yaie_widgets.dashboard_plot import slots_for
from yaie_widgets.dashboard_strips import STRIPS

LEFT, RIGHT = 150, 98


def values(page: Any) -> list[tuple[str, str]]:
    """The figures in the right gutter, strip by strip."""
    pairs = page.locator(".y-dash-value, .y-dash-small[text-anchor=end]").all_text_contents()
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def wanted(made: dict[str, Any], place: int) -> list[tuple[str, str]]:
    """What the static twin says of a step."""
    view = dashboard_view(made)
    step: StepFigures = view.steps[place]
    return [strip.words(view, step) for strip in STRIPS]


def at(page: Any, place: int, steps: int) -> tuple[float, float]:
    """The middle of the column of the step in a place."""
    box = page.locator(".y-dash-plot").bounding_box()
    return box["x"] + LEFT + (place + 0.5) * (box["width"] - LEFT - RIGHT) / slots_for(steps), box["y"] + 90


@pytest.mark.browser
@pytest.mark.parametrize("name", ["empty", "small", "busy", "full"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [560, 900])
def test_it_is_readable_and_whole(harness: Harness, recording: Recordings, name: str, theme: str, width: int) -> None:
    made = recording(name)
    made["engine"]["memory"] = 642_000_000
    page = harness("dashboard", made, theme, width)
    check_looks(page)
    assert page.get_by_text("612 MiB").is_visible()
    assert page.get_by_text("No step recorded yet. Run a %%generate cell.").is_visible() == (name == "empty")


@pytest.mark.browser
def test_values_follow_the_pointer_and_the_keys(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    number = len(made["steps"])
    page = harness("dashboard", made)
    assert values(page) == wanted(made, number - 1)
    page.mouse.move(*at(page, 20, number))
    assert values(page) == wanted(made, 20) != wanted(made, number - 1)
    page.mouse.move(450, 900)
    assert values(page) == wanted(made, number - 1)
    plot = page.locator(".y-dash-plot")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    assert values(page) == wanted(made, number - 2)
    page.keyboard.press("Shift+ArrowLeft")
    assert values(page) == wanted(made, number - 12)
    assert plot.get_attribute("aria-valuenow") == str(made["steps"][number - 12]["step"])
    assert wanted(made, number - 12)[0][0] in plot.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    assert values(page) == wanted(made, 0)
    page.keyboard.press("End")
    assert values(page) == wanted(made, number - 1) and page.errors == []


@pytest.mark.browser
def test_pause_holds_the_picture_and_going_on_catches_up(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    steps, requests = made["steps"], made["requests"]
    page = harness("dashboard", {**made, "steps": steps[:60]})
    page.get_by_role("button", name="Pause").click()
    settle(page)
    held = page.locator(".y-dash").inner_text(), values(page)
    for seq, place in enumerate(range(60, len(steps), 6), 2):
        push(page, {"kind": "steps", "seq": seq, "delta": {"steps": steps[place : place + 6], "requests": requests}})
    assert (page.locator(".y-dash").inner_text(), values(page)) == held
    assert page.get_by_text(f"Paused at step {steps[59]['step']}").is_visible()
    page.get_by_role("button", name="Go on").click()
    settle(page)
    assert values(page) == wanted(made, len(steps) - 1)
    assert page.get_by_text(f"ready · step {steps[-1]['step']} · live").is_visible()


@pytest.mark.browser
def test_its_height_stays_while_steps_come(harness: Harness, recording: Recordings) -> None:
    made = recording("full")
    steps = made["steps"]
    made["engine"]["memory"] = 1
    page = harness("dashboard", {**made, "steps": steps[:1]}, width=560)
    heights = {height(page)}
    for seq, place in enumerate(range(1, len(steps), 40), 2):
        push(
            page,
            {"kind": "steps", "seq": seq, "delta": {"steps": steps[place : place + 40], "engine": {"memory": 2**34}}},
        )
        heights.add(height(page))
    assert len(heights) == 1 and page.errors == []
    check_looks(page)


@pytest.mark.browser
def test_events_have_a_mark_and_its_words(harness: Harness, recording: Recordings) -> None:
    made = recording("busy")
    page = harness("dashboard", made)
    titles = page.locator(".y-dash-chart title").all_text_contents()
    view = dashboard_view(made)
    assert (
        sum(int(title.split(": ")[1].split()[0]) for title in titles if "preempted" in title) == view.totals.preemptions
    )
    evicted = [title.split(" evicted")[0].split(", ")[-1].split(": ")[-1] for title in titles if "evicted" in title]
    assert sum(int(words.split()[0]) for words in evicted) == view.totals.evictions > 0
    assert page.locator(".y-dash-lost").count() == sum("preempted" in title for title in titles)


@pytest.mark.browser
def test_sixty_payloads_run_nothing(harness: Harness, recording: Recordings) -> None:
    made = recording("small")
    page = harness("dashboard", made)
    for seq, payload in enumerate(PAYLOADS, 2):
        names = dict.fromkeys(("name", "dtype", "device", "tier", "attention_backend"), payload[:2000])
        requests = {payload[:300]: {**next(iter(made["requests"].values())), "text": payload[:200]}}
        push(page, {"kind": "steps", "seq": seq, "delta": {"engine": names, "requests": requests}})
    push(page, {"kind": "steps", "seq": 99, "delta": {"engine": {"state": PAYLOADS[0]}}})
    page.wait_for_timeout(100)
    assert page.errors == []
    assert page.locator(".yaie").locator("script, iframe, img, a, foreignObject, image, use").count() == 0


@pytest.mark.browser
def test_the_header_says_that_the_kernel_is_lost(harness: Harness, recording: Recordings) -> None:
    made = recording("small")
    page = harness("dashboard", made)
    before = values(page)
    page.evaluate("window.model.tell('comm_live_update')")
    page.wait_for_function("() => document.querySelector('.yaie').textContent.includes('lost')")
    settle(page)
    last = made["steps"][-1]["step"]
    assert page.get_by_text(f"Connection to the kernel lost at step {last}").is_visible()
    assert not page.get_by_text("live").is_visible() and values(page) == before
    assert not page.get_by_role("button", name="Pause").is_visible()


def test_a_page_learns_steps_and_memory_from_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie_widgets import EngineDashboard
    from yaie_widgets.live.source import source_of

    with LLM("tiny", num_blocks=64) as llm:
        view = EngineDashboard(source_of(llm))
        sent: list[Any] = []
        monkeypatch.setattr(view, "_transmit", lambda message, most: sent.append(message))
        whole = view.whole()
        assert whole["kind"] == "recording" and whole["recording"]["engine"]["memory"] > 2**20
        json.dumps(whole)
        llm.generate(["One"], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
        end = time.monotonic() + 10
        while sum(len(each) for each in deltas(sent, "steps")) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        steps = [step["step"] for each in deltas(sent, "steps") for step in each]
        assert steps == sorted(set(steps)) and len(steps) == llm.step
        assert any(each.get("memory", 0) > 2**20 for each in deltas(sent, "engine"))
        view.close()


def deltas(sent: list[Any], key: str) -> list[Any]:
    """That key of all deltas sent so far."""
    messages = [one for message in sent for one in message.get("messages", [message])]
    return [message["delta"][key] for message in messages if key in message.get("delta", {})]


def test_a_saved_run_has_no_memory(recording: Recordings) -> None:
    from yaie_widgets import EngineDashboard
    from yaie_widgets.live.source import FileSource

    view = EngineDashboard(FileSource(recording("small")))
    assert "memory" not in view.whole()["recording"]["engine"]
    view.close()
