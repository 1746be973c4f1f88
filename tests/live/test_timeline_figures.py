"""The live timeline against the static one: equal rows, spans, ends and figures; and its trace against Python's."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.live.played import Json, Played, in_node, played, written
from tests.widgets import timelines
from tests.widgets.test_trace import check_trace
from yaie_widgets.live.recorded import history_of, snapshot_of, tape_of
from yaie_widgets.timeline_model import TimelineRow, TimelineView, timeline_view
from yaie_widgets.trace import chrome_trace

RUNS = ("empty", "small", "busy", "swaps", "full", "by hand")
MICROS = 150
"""Times of a recording are rounded to a tenth of a millisecond."""


def run_of(name: str) -> Played:
    if name == "by hand":
        return written(timelines.snapshot(), timelines.tape(), timelines.history())
    return played(name)


def windows_of(run: Played) -> list[tuple[int, int]]:
    """All steps, the usual window, one in the middle, the first and the last step."""
    if not run.numbers:
        return [(0, 0)]
    first, last = run.numbers[0], run.numbers[-1]
    third = (last - first) // 3
    middle = (first + third, first + 2 * third)
    return [(first, last), (max(first, last - 59), last), middle, (first, first), (last, last)]


def static(run: Played, window: tuple[int, int], **options: Any) -> TimelineView:
    steps = window[1] - window[0] + 1
    first = window[0] if run.numbers else None
    return timeline_view(run.snapshot, run.tape, run.history, steps=steps, first=first, budget=run.budget, **options)


def plain(row: TimelineRow) -> Json:
    spans = [{name: getattr(s, name) for name in ("kind", "first", "last", "tokens", "cached")} for s in row.spans]
    end = {"column": row.end.column, "reason": row.end.reason} if row.end else None
    figures = {"prompt": row.num_prompt_tokens, "cached": row.num_cached_tokens, "output": row.num_output_tokens}
    return {"label": row.label, "state": row.state, "spans": spans, "end": end, **figures}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("parts", [1, 7])
def test_rows_and_spans_are_those_of_the_drawing(name: str, parts: int) -> None:
    run = run_of(name)
    windows = windows_of(run)
    compared = 0
    for window, found in zip(windows, in_node(run.recording, windows, parts)["windows"], strict=True):
        view = static(run, window)
        assert found["columns"] == [step.record.step for step in view.steps]
        live = [{key: row[key] for key in plain(each)} for row, each in zip(found["rows"], view.rows, strict=True)]
        assert live == [plain(row) for row in view.rows]
        # What a live request says comes from the tree there, from its prompt here.
        assert all(
            row["text"] == each.text[:200] for row, each in zip(found["rows"], view.rows, strict=True) if each.end
        )
        assert (found["hidden"], found["finishedEarlier"]) == (view.hidden, view.finished_earlier - earlier(run))
        assert (found["numBlocks"], found["budget"], found["newest"]) == (view.num_blocks, view.budget, view.newest)
        compared += sum(len(row.spans) for row in view.rows)
    assert compared > 0 or name == "empty"


@pytest.mark.parametrize("name", ["small", "busy"])
def test_a_request_that_no_step_saw_is_counted_nowhere(name: str) -> None:
    recording = copy.deepcopy(run_of(name).recording)
    gone = {"state": "cancelled", "finish_reason": "cancelled", "num_output_tokens": 0}
    recording["requests"]["req-900"] = {**next(iter(recording["requests"].values())), **gone}
    tape = tape_of(recording)
    snapshot, history = snapshot_of(recording, tape), history_of(recording)
    steps = [step["step"] for step in recording["steps"]]
    window = (max(steps[0], steps[-1] - 59), steps[-1])
    view = timeline_view(snapshot, tape, history, steps=window[1] - window[0] + 1, first=window[0])
    (found,) = in_node(recording, [window])["windows"]
    assert found["finishedEarlier"] == view.finished_earlier


def earlier(run: Played) -> int:
    """Requests that ended before the recording begins: only the engine's counters remember them."""
    known = {row.label for row in timeline_view(run.snapshot, run.tape, run.history, steps=10_000).rows}
    ended = {record.request_id for record in run.history}
    return sum(run.snapshot.counters.requests.values()) - len(ended & known)


@pytest.mark.parametrize("name", ["small", "busy", "full"])
def test_output_at_the_cursor_grows_to_what_was_written(name: str) -> None:
    run = played(name)
    found = in_node(run.recording, windows_of(run)[:1])["windows"][0]
    assert found["rows"]
    for row in found["rows"]:
        outputs = [each for each in row["outputs"] if each is not None]
        assert outputs == sorted(outputs) and outputs[-1] == row["output"] > 0
        work = [span for span in row["spans"] if span["kind"] in ("prefill", "decode")]
        assert row["outputs"][work[0]["first"] - 1 if work[0]["first"] else 0] in (None, 0, 1)
        # Once it decodes, each step of it writes a token.
        decodes = [
            column for span in work if span["kind"] == "decode" for column in range(span["first"], span["last"] + 1)
        ]
        assert all(row["outputs"][column] - row["outputs"][column - 1] == 1 for column in decodes)


@pytest.mark.parametrize("name", RUNS)
def test_the_trace_is_that_of_python(name: str) -> None:
    run = run_of(name)
    windows = windows_of(run)[:3]
    for window, found in zip(windows, in_node(run.recording, windows)["windows"], strict=True):
        wanted = chrome_trace(static(run, window, max_rows=10_000), run.history)
        events, others = found["trace"].pop("traceEvents"), wanted.pop("traceEvents")
        other, otherwise = found["trace"].pop("otherData"), wanted.pop("otherData")
        assert found["trace"] == wanted and other["newest_step"] == otherwise["newest_step"]
        assert abs(other["begin_unix_us"] - otherwise["begin_unix_us"]) <= MICROS
        assert len(events) == len(others) and sorted(map(key, events)) == sorted(map(key, others))
        by_track = [
            sorted(each, key=lambda event: (event["pid"], event["tid"], event["ts"], key(event)))
            for each in (events, others)
        ]
        for mine, theirs in zip(*by_track, strict=True):
            same(mine, theirs)


def key(event: Json) -> tuple[Any, ...]:
    return (
        event["ph"],
        event["pid"],
        event["tid"],
        event["name"],
        str(sorted(event["args"])),
        event["args"].get("tokens", 0),
    )


def same(mine: Json, theirs: Json) -> None:
    times = {"ts", "dur"}
    assert mine.keys() == theirs.keys()
    assert {name: mine[name] for name in mine.keys() - times - {"args"}} == {
        name: theirs[name] for name in theirs.keys() - times - {"args"}
    }
    assert all(abs(mine[name] - theirs[name]) <= MICROS for name in times & mine.keys()), (mine, theirs)
    assert (
        mine["args"] == pytest.approx(theirs["args"], abs=1e-4)
        if "ms" in mine["args"]
        else mine["args"] == theirs["args"]
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_trace_keeps_the_rules_of_the_format(name: str) -> None:
    """What Perfetto's importer asks for: see the Trace Event Format, and its notes on JSON in the docs."""
    run = run_of(name)
    trace = in_node(run.recording, windows_of(run)[:1])["windows"][0]["trace"]
    assert trace["displayTimeUnit"] in ("ms", "ns")
    timed = check_trace(trace)
    assert bool(timed) == bool(run.numbers)
    named = {(e["name"], e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "M"}
    for event in trace["traceEvents"]:
        # Integers name processes and tracks; timestamps are numbers, not strings.
        assert type(event["pid"]) is int and type(event["tid"]) is int and event["tid"] >= 0
        assert isinstance(event["ts"], int | float) and not isinstance(event["ts"], bool)
        assert isinstance(event["name"], str) and event["name"]
        assert ("process_name", event["pid"], 0) in named
        if event["ph"] in "Xi":
            assert ("thread_name", event["pid"], event["tid"]) in named
            assert ("thread_sort_index", event["pid"], event["tid"]) in named
        if event["ph"] == "C":
            # A counter's series are the numbers in its arguments.
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] == "t"
    nested(timed)


def nested(events: list[Json]) -> None:
    """Slices of one track lie beside or inside one another, never across."""
    open_until: dict[tuple[int, int], list[float]] = {}
    for event in events:
        if event["ph"] != "X":
            continue
        stack = open_until.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= event["ts"] + 0.01:
            stack.pop()
        assert not stack or event["ts"] + event["dur"] <= stack[-1] + 0.01, event
        stack.append(event["ts"] + event["dur"])
