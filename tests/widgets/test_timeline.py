"""The timeline's rows, figures, picture and text, on a run written down by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.snapshot import Counters, StepRecord
from yaie_engine.tape import Frame, Tape, TapeStep
from yaie_widgets import Timeline, draw_timeline
from yaie_widgets.timeline_model import Span, TimelineView, timeline_view
from yaie_widgets.timeline_panel import batch_of, block_figures

from .graphs import parse_svg, texts, titles
from .payloads import PAYLOADS
from .test_hostile_text import _HTML_TAGS, assert_harmless, read_html
from .timelines import history, record, snapshot, steps, tape


def made(**options: Any) -> TimelineView:
    return timeline_view(snapshot(), tape(), history(), **options)


def drawn(**options: Any) -> Timeline:
    return draw_timeline(snapshot(), tape(), history(), budget=16, **options)


def many(number: int) -> Timeline:
    """`number` requests that all wait and write."""
    names = [f"r{i}" for i in range(number)]
    first = record(1, *((name, "prefill", 1) for name in names[: number // 2]))
    second = record(2, *((name, "prefill", 1) for name in names[number // 2 :]))
    here = replace(snapshot(), step=2, steps=(first, second), requests=(), counters=Counters({}))
    changes = [{"arrived": tuple(names)}, {}]
    return draw_timeline(here, Tape(Frame(), tuple(TapeStep(n, 1.0 * n, **c) for n, c in enumerate(changes, 1))))


def test_spans_are_what_the_steps_say() -> None:
    rows = {row.label: row.spans for row in made().rows}
    assert rows["a"] == (Span("prefill", 0, 0, 8), Span("prefill", 1, 1, 4), Span("decode", 2, 4, 3))
    assert rows["b"] == (
        Span("waiting", 0, 0),
        Span("prefill", 1, 1, 4, 4),
        Span("decode", 2, 2, 1),
        Span("preempted", 3, 4),
        Span("prefill", 5, 5, 5, 5),
    )
    assert rows["c"] == (Span("waiting", 1, 1),)
    assert rows["d"] == ()


def test_rows_come_in_order_of_arrival_with_their_ends() -> None:
    rows = made().rows
    assert [row.label for row in rows] == ["a", "b", "c", "d"]
    assert [(row.end.column, row.end.reason) if row.end else None for row in rows] == [
        (5, "stop"),
        None,
        (2, "cancelled"),
        None,
    ]
    assert [row.state for row in rows] == ["stop", "decode", "cancelled", "waiting"]
    assert [row.num_output_tokens for row in rows] == [4, 3, 0, 0]
    assert [row.num_prompt_tokens for row in rows] == [12, 8, 4, 8]


def test_every_step_of_a_row_has_one_span_at_most() -> None:
    for row in made().rows:
        columns = [column for span in row.spans for column in range(span.first, span.last + 1)]
        assert columns == sorted(set(columns))
        assert all(row.at(column) is not None for column in columns)


def test_the_window() -> None:
    last = made(steps=2)
    assert [step.record.step for step in last.steps] == [5, 6]
    assert [row.label for row in last.rows] == ["a", "b", "d"]
    assert last.finished_earlier == 3
    assert made().finished_earlier == 2
    middle = made(first=2, steps=2)
    assert [step.record.step for step in middle.steps] == [2, 3]
    assert {row.label: row.end for row in middle.rows}["a"] is None
    assert [row.label for row in middle.rows] == ["a", "b", "c"]
    assert "steps 2 to 3" in drawn(first=2, steps=2).title and "as of step 6" in drawn(first=2, steps=2).title


def test_one_request_alone() -> None:
    assert [row.label for row in made(request="b").rows] == ["b"]
    with pytest.raises(RequestError, match="'x' is not in the steps shown: there are a, b, c"):
        made(request="x")


def test_blocks_after_each_step_are_those_of_the_frames() -> None:
    assert [(step.num_held, step.num_cached) for step in made().steps] == [
        (2, 0),
        (3, 0),
        (3, 0),
        (2, 0),
        (0, 0),
        (2, 0),
    ]
    figures = dict(block_figures(made(), made().steps[-1]))
    assert (figures["Free"], figures["Cached"], figures["Held"], figures["Evicted"]) == ("8", "0", "2", "1")


def test_the_batch_of_a_step() -> None:
    view = made()
    assert [(w.label, w.work, w.cached, w.tokens) for w in batch_of(view.steps[1])] == [
        ("a", "prefill", 0, 4),
        ("b", "prefill", 4, 4),
    ]
    assert [(w.label, w.work, w.tokens) for w in batch_of(view.steps[3])] == [
        ("a", "decode", 1),
        ("b", "preempted", None),
    ]


def test_a_choice_that_runs_without_a_token_is_paused() -> None:
    more = (*steps(), record(7, ("e", "decode", 1)))
    change = TapeStep(7, 100.07, arrived=("e",), admitted=(("e", 0),))
    view = timeline_view(replace(snapshot(), step=7, steps=more), Tape(Frame(), (*tape().steps, change)), history())
    assert {row.label: row.spans[-1:] for row in view.rows}["b"] == (Span("paused", 6, 6),)


def test_what_ended_after_the_newest_step_is_over() -> None:
    ended = replace(snapshot(), requests=(), counters=replace(snapshot().counters, requests={"cancelled": 5}))
    records = [*history(), replace(history()[1], request_id="b")]
    rows = {row.label: row for row in timeline_view(ended, tape(), records).rows}
    assert rows["b"].end is not None and (rows["b"].end.column, rows["b"].end.reason) == (6, "cancelled")


def test_what_nothing_remembers_is_not_made_up() -> None:
    drawing = draw_timeline(snapshot(), tape())
    row = drawing.view.rows[0]
    assert row.end is not None and (row.end.reason, row.state, row.num_output_tokens) == ("finished", "finished", None)
    assert "PP===○" in drawing.text and "—" in texts(drawing.svg)


def test_steps_newer_than_the_snapshot_are_left_out() -> None:
    change = TapeStep(7, 100.07, arrived=("late",))
    view = timeline_view(snapshot(), Tape(Frame(), (*tape().steps, change)), history())
    assert "late" not in [row.label for row in view.rows] and view.steps[-1].record.step == 6


def test_picture_and_text_give_the_same_figures() -> None:
    drawing = drawn()
    shown = texts(drawing.svg)
    assert {"4 tok", "3 tok", "0 tok", "5 of 16 tokens", "of 16", "largest 8", "Step 6", "+2 finished earlier"} <= set(
        shown
    )
    assert "newest 5, largest 8 of 16" in drawing.text
    assert "free 8, cached 0, held 2" in drawing.text
    lines = {line.split()[0]: line.split() for line in drawing.text.partition("\nStep")[0].splitlines()}
    assert lines["a"][1:] == ["PP===●", "stop", "12", "0", "4"]
    assert lines["b"][1] == "·C=xxC"
    assert "1 preemption · 3 blocks evicted" in drawing.title and drawing.title in drawing.text
    assert any("b: prefill, step 2, 4 tokens, 4 tokens from the cache" in title for title in titles(drawing.svg))
    assert "a: stop, 12 prompt tokens, 4 output tokens: one two three four" in titles(drawing.svg)


def test_static_mode_has_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "60 ms" in drawn().text and "time: 10 ms" in drawn().text and "Time" in texts(drawn().svg)
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    quiet = drawn()
    assert " ms" not in quiet.text + quiet.svg.partition("</style>")[2]
    assert quiet.svg == drawn().svg and quiet.html == drawn().html


def test_the_empty_timeline() -> None:
    drawing = draw_timeline(replace(snapshot(), steps=(), requests=()), Tape(Frame(), ()))
    assert drawing.text == "No step recorded yet. Run a %%generate cell."
    assert drawing.text in texts(drawing.svg)
    with pytest.raises(RequestError, match="no step is recorded yet"):
        draw_timeline(replace(snapshot(), steps=()), Tape(Frame(), ()), first=1)


@pytest.mark.parametrize(("number", "height"), [(4, 20), (13, 12), (60, 12), (61, 2), (200, 2)])
def test_rows_get_lower_the_more_there_are(number: int, height: int) -> None:
    small, here = (
        float(parse_svg(many(3).svg).get("height", "0")),
        float(parse_svg(many(number).svg).get("height", "0")),
    )
    assert here - small == number * height - 3 * 20
    assert ("r0" in texts(many(number).svg)) == (height > 2)


def test_beyond_400_rows_the_rest_is_counted() -> None:
    drawing = many(450)
    assert len(drawing.view.rows) == 400 and drawing.view.hidden == 50
    assert "+50 more in these steps" in drawing.text and "450 requests" not in drawing.text
    assert len(drawing.svg) < 500_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps is 0: use 1 to 600"),
        ({"steps": 601}, "steps is 601"),
        ({"first": 9}, "from is 9: steps 1 to 6 are recorded"),
        ({"format": "png"}, "format is 'png': use one of svg, text"),
    ],
)
def test_values_out_of_range_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        drawn(**options)


def test_files(tmp_path: Path) -> None:
    drawing = drawn()
    for suffix, form in ((".svg", drawing.svg), (".txt", drawing.text), (".html", drawing.html)):
        assert drawing.save(tmp_path / f"t{suffix}").read_text(encoding="utf-8") == form
    with pytest.raises(RequestError, match=r"use \.svg, \.html or \.txt"):
        drawing.save(tmp_path / "t.png")
    with pytest.raises(RequestError, match=r"cannot save .*No such file"):
        drawing.save(tmp_path / "absent" / "t.svg")


def test_what_a_notebook_gets() -> None:
    assert set(drawn()._repr_mimebundle_()) == {"text/plain", "text/html", "image/svg+xml"}
    assert drawn(format="text")._repr_mimebundle_() == {"text/plain": drawn().text}
    assert repr(drawn()).startswith("<Timeline: 4 requests · steps 1 to 6")


@pytest.mark.parametrize("payload", PAYLOADS, ids=[f"{number:02}" for number in range(len(PAYLOADS))])
def test_hostile_ids_and_texts_stay_text(payload: str) -> None:
    a, b, c = f"a {payload[:300]}", f"b {payload[:300]}", f"c {payload[:300]}"
    records = [replace(each, prompt=payload) for each in history(a, c)]
    drawing = draw_timeline(snapshot(a, b), tape(a, b, c), records)
    parse_svg(drawing.svg)
    assert_harmless(drawing.text)
    found = read_html(drawing.html)
    assert found.tags <= _HTML_TAGS
    assert not [name for name in found.attributes if name.startswith("on") or name in ("href", "src", "srcdoc", "id")]
    assert len(drawing.view.rows) == 4


def test_a_record_without_tokens_is_drawn() -> None:
    empty: StepRecord = record(1)
    view = draw_timeline(replace(snapshot(), step=1, steps=(empty,)), Tape(Frame(), (TapeStep(1, 1.0),)))
    assert "Step 1" in view.text and parse_svg(view.svg) is not None
