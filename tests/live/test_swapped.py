"""A request that was swapped to host blocks is called swapped in every view, and one that lost its blocks preempted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.live import generations
from tests.live.conftest import Recordings
from tests.live.looks import check_looks
from tests.live.page import Harness, go
from tests.live.played import Json, played
from yaie_engine.config import EngineConfig
from yaie_widgets import draw_dashboard
from yaie_widgets.insights.find import find_insights
from yaie_widgets.live.generation_row import tally
from yaie_widgets.live.recorded import snapshot_of, tape_of
from yaie_widgets.live.recording_cut import cut
from yaie_widgets.live.replay_twin import draw_replay
from yaie_widgets.timeline import draw_timeline
from yaie_widgets.timeline_model import timeline_view

HATCH = """block => {
  const style = getComputedStyle(document.querySelector(`[data-id='${block}']`), "::before");
  return style.content !== "none" && style.backgroundImage.startsWith("repeating-linear-gradient");
}"""


def last_swap(run: Json) -> Json:
    """The newest step in which a request was swapped out."""
    return next(step for step in reversed(run["steps"]) if any(state == "swapped" for _, state in step.get("left", ())))


def until(run: Json, step: int) -> Json:
    """The run as it was after a step, with the states that its requests had then."""
    steps = [each for each in run["steps"] if each["step"] <= step]
    facts = {label: {**known, "state": "decode", "finish_reason": None} for label, known in run["requests"].items()}
    for each in steps:
        for label, state in each.get("left", ()):
            facts[label]["state"] = "preempted" if state == "waiting" else state
        for label, _ in each.get("admitted", ()):
            facts[label]["state"] = "decode"
    return {**run, "steps": steps, "requests": facts}


def test_the_tape_tells_swapped_from_preempted_and_what_the_host_holds() -> None:
    run = played("swaps")
    how = Counter(state for change in run.tape.steps for _, state in change.left)
    counters = run.snapshot.counters
    assert how["swapped"] > 0 and how["waiting"] > 0 and how["swapped"] + how["waiting"] == counters.preemptions
    away: set[str] = set()
    for change, frame in zip(run.tape.steps, run.tape.frames(), strict=True):
        away -= {label for label, _ in change.admitted}
        away |= {label for label, state in change.left if state == "swapped"}
        assert (change.host_held > 0) == bool(away), change.step
        assert away <= frame.waiting.keys()
    assert tape_of(run.recording).steps[-1].ended == run.tape.steps[-1].ended


def test_spans_words_and_totals_name_it() -> None:
    run = played("swaps")
    drawn = draw_timeline(run.snapshot, run.tape, run.history, steps=200, budget=run.budget)
    view = timeline_view(run.snapshot, run.tape, run.history, steps=200)
    kinds = Counter(span.kind for row in view.rows for span in row.spans)
    assert (kinds["swapped"], kinds["preempted"]) == (3, 1)
    assert "4 preemptions, 3 swapped" in drawn.title
    rows = [line for line in drawn.text.splitlines() if line.lstrip().startswith("req-")]
    assert sum("=ss" in line or "Pss" in line for line in rows) == 3 and "s swapped" in drawn.text
    assert "swapped</text>" in drawn.svg and 's-swapped"' in drawn.svg
    dashboard = draw_dashboard(run.recording)
    assert "preemptions 4, 3 swapped" in dashboard.text and "request swapped</text>" in dashboard.svg
    assert sum("1 request swapped" in title for title in dashboard.svg.split("<title>")) == 3


def test_insights_say_how_often_the_host_took_them() -> None:
    run = played("swaps")
    found = find_insights(run.snapshot, run.tape, run.history, EngineConfig(model="tiny"))
    said = next(each.statement for each in found.findings if each.id == "preemptions")
    assert "4 times so that others could go on, 3 times to host blocks;" in said


def test_a_run_without_swaps_has_no_sign_of_them() -> None:
    run = played("busy")
    drawn = draw_timeline(run.snapshot, run.tape, run.history, steps=200)
    assert "swapped</text>" not in drawn.svg and "swapped" not in drawn.title
    assert "swapped" not in draw_dashboard(run.recording).svg.split("</style>")[-1]


def test_a_recording_that_ends_there_counts_it_and_may_begin_later() -> None:
    run = played("swaps").recording
    early = until(run, last_swap(run)["step"])
    snapshot = snapshot_of(early, tape_of(early))
    away = [request.request_id for request in snapshot.requests if request.state == "swapped"]
    assert snapshot.queue.swapped == len(away) >= 1 and snapshot.queue.preempted == 0
    assert f"{away[0]}" in draw_replay(early).text and "swapped" in draw_replay(early).timeline.text
    shorter = cut(early, 1)
    assert set(away) <= set(shorter["requests"]), "it has not ended"


def test_a_card_calls_it_swapped_and_counts_it_among_those_that_wait() -> None:
    row = generations.row_of("req-1", generations.progress("swapped", "Once upon a time"))
    assert (row.state, row.mark, row.status) == ("swapped", "swapped", "swapped")
    assert tally([row], 1, "request") == "1 request · 1 waiting"


@pytest.mark.browser
def test_blocks_that_went_out_are_hatched_and_counted_on_the_host(harness: Harness, recording: Recordings) -> None:
    run = recording("swaps")
    step = last_swap(run)
    page = harness("blocks", run)
    go(page, step["step"])
    out = {block for block, target in step["swapped"] if target < 0}
    assert out == {block for block in range(12) if "swapped" in said(page, block)}
    assert [block in out for block in range(12)] == [page.evaluate(HATCH, block) for block in range(12)]
    host = page.locator(".y-map-entry.host")
    assert host.inner_text().split("\n")[-1] == str(step["host_held"]) != "0"
    check_looks(page)
    go(page, run["steps"][-1]["step"])
    assert host.inner_text().split("\n")[-1] == "0" and host.is_visible()


@pytest.mark.browser
def test_a_block_that_is_free_after_it_went_out_is_hatched(harness: Harness, recording: Recordings) -> None:
    run = recording("small")
    run["steps"][-1]["swapped"] = [[60, -1]]
    page = harness("blocks", run)
    assert said(page, 60) == "block 60, free, swapped" and page.evaluate(HATCH, 60)
    assert said(page, 61) == "block 61, free" and not page.evaluate(HATCH, 61)


def said(page: Any, block: int) -> str:
    return str(page.locator(f"[data-id='{block}']").get_attribute("aria-label"))


@pytest.mark.browser
def test_no_row_for_the_host_without_swaps(harness: Harness, recording: Recordings) -> None:
    page = harness("replay", recording("busy"))
    assert page.locator(".y-map-entry.host").is_hidden()
    assert page.locator(".y-tl-legend").get_by_text("swapped").is_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_replay_shows_its_bar_mark_and_work(harness: Harness, recording: Recordings, theme: str) -> None:
    run = recording("swaps")
    step = last_swap(run)
    page = harness("replay", run, theme)
    go(page, step["step"])
    label = next(label for label, state in step["left"] if state == "swapped")
    work = page.locator(".y-tl-batch tr", has_text=label)
    assert work.inner_text().split("\t")[1].strip() == "swapped"
    strokes, solid = (page.locator(f".y-tl-plot path.y-tl-{name}") for name in ("swapped", "preempted"))
    assert strokes.get_attribute("d") and strokes.get_attribute("style") != solid.get_attribute("style")
    assert page.locator(".y-tl-legend").get_by_text("swapped").is_visible()
    assert page.locator(".y-overview .y-swapped").count() > 0
    check_looks(page)


@pytest.mark.browser
def test_the_dashboard_marks_it(harness: Harness, recording: Recordings) -> None:
    page = harness("dashboard", recording("swaps"))
    titles = page.locator(".y-dash-chart title").all_text_contents()
    assert sum("1 request swapped" in title for title in titles) == 3
    assert page.locator("line.y-dash-lost.swapped, path.y-dash-lost.swapped").count() == 3
    assert (
        page.get_by_text("4, 3 swapped").is_visible() and page.get_by_text("request swapped", exact=True).is_visible()
    )
    check_looks(page)
