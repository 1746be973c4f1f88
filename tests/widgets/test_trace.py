"""The Chrome trace: required fields of the trace event format, order in time, and the figures in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.tape import Frame, Tape
from yaie_widgets import chrome_trace, save_trace
from yaie_widgets.timeline_model import TimelineView, timeline_view

from .timelines import history, snapshot, tape

# By phase: what https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU asks for.
REQUIRED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "i": {"name", "ph", "ts", "pid", "tid", "s"},
    "M": {"name", "ph", "pid", "tid", "args"},
}


def made() -> TimelineView:
    return timeline_view(snapshot(), tape(), history())


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Valid, in order of time, and no two slices of a track overlap; gives the events without the names."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    events = trace["traceEvents"]
    for event in events:
        assert set(event) >= REQUIRED[event["ph"]], event
        assert isinstance(event["pid"], int) and event["ts"] >= 0 and event.get("dur", 0) >= 0
    timed = [event for event in events if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    ends: dict[tuple[int, int], float] = {}
    for event in timed:
        if event["ph"] == "X":
            track = event["pid"], event["tid"]
            assert event["ts"] >= ends.get(track, 0.0) - 0.01, event
            ends[track] = event["ts"] + event["dur"]
    return timed


def test_a_trace_is_valid_and_in_order() -> None:
    check_trace(chrome_trace(made(), history()))
    check_trace(chrome_trace(made()))
    check_trace(chrome_trace(timeline_view(replace(snapshot(), steps=(), requests=()), Tape(Frame(), ()))))


def test_processes_and_tracks_have_names() -> None:
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"].get("name")
        for event in chrome_trace(made())["traceEvents"]
        if event["ph"] == "M"
    }
    assert (names["process_name", 1, 0], names["process_name", 2, 0]) == ("engine", "requests")
    assert [names["thread_name", 1, track] for track in (1, 2, 3, 4)] == ["schedule", "forward", "sample", "publish"]
    assert [names["thread_name", 2, track] for track in (1, 2, 3, 4)] == ["a", "b", "c", "d"]


def test_phases_follow_each_other() -> None:
    events = check_trace(chrome_trace(made()))
    engine = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 1][:5]
    expected = [("schedule", 0, 1000), ("forward", 1000, 5000), ("sample", 6000, 2000), ("publish", 8000, 2000)]
    for found, wanted in zip(engine, [*expected, ("schedule", 10_000, 1000)], strict=True):
        assert found[0] == wanted[0] and found[1:] == pytest.approx(wanted[1:], abs=1)


def test_slices_of_a_request() -> None:
    events = check_trace(chrome_trace(made(), history()))
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (2, 2)]
    expected = [
        ("waiting", 0, 10_000),
        ("prefill", 10_000, 10_000),
        ("decode", 20_000, 10_000),
        ("preempted", 30_000, 20_000),
        ("prefill", 50_000, 10_000),
    ]
    assert [name for name, *_ in slices] == [name for name, *_ in expected]
    for found, wanted in zip(slices, expected, strict=True):
        assert found[1:] == pytest.approx(wanted[1:], abs=1)
    ends = [(e["name"], e["tid"], e["args"]["output_tokens"]) for e in events if e["ph"] == "i"]
    assert ends == [("cancelled", 3, 0), ("stop", 1, 4)]


def test_counters() -> None:
    counters = [e["args"] for e in chrome_trace(made())["traceEvents"] if e["ph"] == "C"]
    assert counters[0] == {"prefill": 8, "decode": 0}
    assert counters[1] == {"held": 2, "cached": 0, "free": 8}
    assert all(sum(values.values()) == 10 for values in counters[1::2])


def test_a_clock_that_was_set_back_gives_no_overlap() -> None:
    back = Tape(Frame(), tuple(replace(step, at=100 - step.step) for step in tape().steps))
    check_trace(chrome_trace(timeline_view(snapshot(), back, history()), history()))


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    saved = save_trace(made(), tmp_path / "t.json", history())
    assert json.loads(saved.read_text(encoding="utf-8")) == chrome_trace(made(), history())
    with pytest.raises(RequestError, match=r"cannot save .*No such file"):
        save_trace(made(), tmp_path / "absent" / "t.json")


def test_hostile_ids_are_visible_text() -> None:
    trace = chrome_trace(timeline_view(snapshot("a\u202e<b>"), tape("a\u202e<b>"), history()))
    assert any(
        event["args"].get("name") == "a\u2039U+202E\u203a<b>" for event in trace["traceEvents"] if event["ph"] == "M"
    )
