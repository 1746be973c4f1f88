"""The live dashboard against its static twin: equal figures of every step, equal totals, equal words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.played import Json, in_node, played, written
from tests.widgets import timelines
from yaie_engine.tape import Frame
from yaie_widgets import draw_dashboard
from yaie_widgets.dashboard_model import DashboardView, StepFigures, dashboard_view
from yaie_widgets.dashboard_strips import STRIPS, engine_words, total_words
from yaie_widgets.live.recording import frame_json
from yaie_widgets.timeline_model import pool_counts

RUNS = ("empty", "small", "busy", "swaps", "full", "by hand")
FIELDS = ("step", "running", "queued", "prefill", "decode", "shared", "held", "cached", "prompt", "hit", "output")
EVENTS = ("evicted", "copied")
LOST = ("preempted", "swapped")


def recording_of(name: str) -> Json:
    if name == "by hand":
        return written(timelines.snapshot(), timelines.tape(), timelines.history()).recording
    recording = dict(played(name).recording)
    return {**recording, "engine": {**recording["engine"], "memory": 642_000_000}}


def plain(step: StepFigures) -> Json:
    counts = {name: getattr(step, name) for name in (*FIELDS, *EVENTS, *LOST, "rate", "hit_rate")}
    return {**counts, "ms": list(step.ms)}


def live_figures(found: Json) -> list[Json]:
    names = (*FIELDS, *EVENTS, "rate", "hit_rate", "ms")
    lost = ({name: len(one[name]) for name in LOST} for one in found["figures"])
    return [{name: one[name] for name in names} | each for one, each in zip(found["figures"], lost, strict=True)]


def check(recording: Json, view: DashboardView, found: Json) -> None:
    """All that both show."""
    assert live_figures(found) == [plain(step) for step in view.steps]
    assert found["totals"] == {name: getattr(view.totals, name) for name in found["totals"]}
    assert found["said"]["engine"] == engine_words(view)
    assert [tuple(words) for words in found["said"]["totals"]] == total_words(view)
    for strip, (title, top, edge, words) in zip(STRIPS, found["said"]["strips"], strict=True):
        assert (title, top, edge) == (strip.title, strip.top(view), strip.edge(view))
        assert [tuple(each) for each in words] == [strip.words(view, step) for step in view.steps]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("parts", [1, 5])
def test_live_and_twin_say_the_same(name: str, parts: int) -> None:
    recording = recording_of(name)
    view = dashboard_view(recording)
    assert len(view.steps) == len(recording["steps"])
    check(recording, view, in_node(recording, parts=parts))


@pytest.mark.parametrize("name", ["small", "busy", "swaps", "full"])
def test_figures_are_those_of_the_engine(name: str) -> None:
    """Its own counters, of which the dashboard knows nothing."""
    run = played(name)
    view, counters = dashboard_view(run.recording), run.snapshot.counters
    assert view.totals.output == counters.generated_tokens > 0
    assert view.totals.preemptions == counters.preemptions
    assert (view.totals.evictions, view.totals.copies) == (counters.evictions, counters.copies)
    assert (view.totals.prompt, view.steps[-1].hit) == (counters.prompt_tokens, counters.cached_tokens)
    assert view.totals.ended == view.totals.requests == sum(counters.requests.values())
    assert sum(step.tokens for step in view.steps) == counters.computed_tokens
    for step, frame in zip(view.steps, run.tape.frames(), strict=True):
        assert (step.held + step.shared, step.cached) == pool_counts(frame)
        assert (step.running, step.queued) == (len(frame.tables), len(frame.waiting))
        holders: dict[int, int] = {}
        for table in frame.tables.values():
            for block in table.blocks:
                holders[block] = holders.get(block, 0) + 1
        assert step.shared == sum(count > 1 for count in holders.values())
    assert name == "swaps" or any(step.shared for step in view.steps)


def test_a_ring_that_rolled_says_the_same_in_both() -> None:
    """Figures count from the oldest step that is left, whether the older ones were seen or not."""
    run, gone = played("busy"), 40
    base: Frame = run.tape.base.copy()
    for change in run.tape.steps[:gone]:
        base.apply(change)
    recording = {**run.recording, "base": frame_json(base), "steps": run.recording["steps"][gone:]}
    view = dashboard_view(recording)
    assert view.totals.prompt < dashboard_view(run.recording).totals.prompt
    assert view.totals.output < dashboard_view(run.recording).totals.output
    check(recording, view, in_node(recording))


def test_twin_has_the_words_of_the_live_view() -> None:
    recording = recording_of("busy")
    drawing = draw_dashboard(recording)
    said = in_node(recording)["said"]
    shown = [*said["totals"], *((edge, words[-1][0], words[-1][1]) for _, _, edge, words in said["strips"])]
    for words in shown:
        for word in filter(None, words):
            assert word in drawing.svg and (word in drawing.text or word.lower() in drawing.text), word
    assert drawing.text.count("\n") == 7


def test_the_empty_twin_says_what_to_do() -> None:
    drawing = draw_dashboard(recording_of("empty"))
    for form in (drawing.text, drawing.svg, drawing.html):
        assert "No step recorded yet. Run a %%generate cell." in form


def test_static_mode_has_neither_times_nor_memory(monkeypatch: Any) -> None:
    timed = draw_dashboard(recording_of("busy"))
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    still = draw_dashboard(recording_of("busy"))
    for measured in ("tok/s", " ms", "MiB"):
        assert measured in timed.text and measured in timed.svg
        assert measured not in still.text and measured not in still.svg


STEPS, LASTING, MOST = 4400, 10, 4096


def long_run() -> Json:
    """More steps than a page keeps: one request after the other, ten steps each, with a block of its own."""
    steps = []
    for number in range(STEPS):
        label, place = f"r{number // LASTING}", number % LASTING
        one: Json = {"step": number + 1, "at": 100 + number / 100, "ms": [0.1, 1 + place, 0.2, 0.3]}
        one |= {"prefill": 0 if place else 20, "decode": 1 if place else 0}
        one["batch"] = [[label, "decode", 1] if place else [label, "prefill", 20]]
        if not place:
            one |= {"arrived": [label], "admitted": [[label, 4]]}
        if place == LASTING - 1:
            one |= {"left": [[label, "finished"]], "evicted": [7]}
        else:
            one["tables"] = [[label, 1 if place else 0, [] if place else [number % 50], 24 + place]]
        steps.append(one)
    facts = {"num_prompt_tokens": 24, "num_output_tokens": LASTING, "num_cached_tokens": 4, "state": "finished"}
    facts |= {"text": "", "finish_reason": "length", "submitted_at": 1.0}
    requests = {f"r{number}": facts for number in range(STEPS // LASTING)}
    base = {"step": 0, "nodes": [], "tables": [], "waiting": []}
    engine = {"name": "tiny", "state": "ready", "num_blocks": 50, "max_num_batched_tokens": 32}
    return {"run": "a" * 32, "engine": engine, "base": base, "steps": steps, "requests": requests, "vocab": {}}


def test_a_page_that_forgets_steps_says_the_same_as_one_that_never_saw_them() -> None:
    whole = long_run()
    gone = STEPS - MOST
    label, place = f"r{gone // LASTING}", gone % LASTING - 1
    base = {"step": gone, "nodes": [], "tables": [[label, [gone // LASTING * LASTING % 50], 24 + place]], "waiting": []}
    late = {**whole, "base": base, "steps": whole["steps"][gone:]}
    view = dashboard_view(late)
    assert len(view.steps) == MOST and view.totals.requests == STEPS // LASTING - gone // LASTING
    found = in_node(whole, [(STEPS - 59, STEPS)], parts=11)
    check(late, view, found)
    window = found["windows"][0]
    assert [row["label"] for row in window["rows"]] == [f"r{number}" for number in range(434, 440)]
    assert window["finishedEarlier"] == 434
