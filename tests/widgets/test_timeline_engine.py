"""The timeline of a real engine: its figures are those of snapshot, history and step records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yaie_engine import LLM, Generation, SamplingParams
from yaie_widgets import chrome_trace, draw_timeline
from yaie_widgets.timeline_model import TimelineRow, TimelineView
from yaie_widgets.tree_view import is_choice

from .graphs import parse_svg, texts
from .test_trace import check_trace

HEAD = "You are the support assistant of Lumen, which makes home batteries. "


def look(llm: LLM, **options: Any) -> TimelineView:
    """The view, after checks that hold for every run."""
    snapshot, tape, history = llm.snapshot(), llm.tape(), llm.history()
    drawing = draw_timeline(snapshot, tape, history, steps=600, **options)
    view = drawing.view
    check_rows(view)
    check_trace(chrome_trace(view, history))
    parse_svg(drawing.svg)
    # A cancelled request gives its blocks back between two steps.
    if view.steps and not snapshot.requests and "cancelled" not in snapshot.counters.requests:
        newest = view.steps[-1]
        assert (newest.num_held, newest.num_cached) == (snapshot.blocks.held, snapshot.blocks.cached)
    if len(view.rows) <= 60:
        shown = texts(drawing.svg)
        for row in view.rows:
            assert f"{row.num_output_tokens:,} tok" in shown and row.label in drawing.text
    return view


def check_rows(view: TimelineView) -> None:
    """Every entry of every batch is a bar, and every bar of work an entry of a batch."""
    drawn = {
        (column, row.label): (span.kind, span.tokens if span.kind == "prefill" else 1)
        for row in view.rows
        for span in row.spans
        if span.kind in ("prefill", "decode")
        for column in range(span.first, span.last + 1)
    }
    recorded = {
        (column, entry.request_id): (entry.kind, entry.num_tokens)
        for column, step in enumerate(view.steps)
        for entry in step.record.batch
        if not view.request or is_choice(entry.request_id, view.request)
    }
    assert drawn == recorded


def by_label(view: TimelineView) -> dict[str, TimelineRow]:
    return {row.label: row for row in view.rows}


def finish(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.result(timeout=60)


def cached_in(row: TimelineRow) -> list[int]:
    return [span.cached for span in row.spans if span.cached]


def test_chunked_prefill_and_a_cached_prefix() -> None:
    params = SamplingParams(max_tokens=5, ignore_eos=True, temperature=0.0)
    with LLM("tiny", num_blocks=64, max_num_batched_tokens=32) as llm:
        outputs = [llm.generate([HEAD * 3 + tail], params, use_tqdm=False)[0] for tail in ("One?", "Two?")]
        rows = look(llm).rows
        assert [row.label for row in rows] == [output.request_id for output in outputs]
        first, second = rows
        chunks = [span.tokens for span in first.spans if span.kind == "prefill"]
        assert len(chunks) > 1 and max(chunks) <= 32 and sum(chunks) == len(outputs[0].prompt_token_ids)
        assert cached_in(second) == [outputs[1].num_cached_tokens] != [0]
        assert second.num_cached_tokens == outputs[1].num_cached_tokens
        for row, output in zip(rows, outputs, strict=True):
            assert row.end is not None and row.end.reason == output.outputs[0].finish_reason == "length"
            assert row.num_output_tokens == 5 and row.num_prompt_tokens == len(output.prompt_token_ids)
            assert sum(s.tokens for s in row.spans) == output.metrics.num_computed_tokens
        assert rows[0].text.startswith("You are the support")


def test_preemption_and_several_choices() -> None:
    with LLM("tiny", num_blocks=14, max_num_batched_tokens=48, max_model_len=200) as llm:
        params = SamplingParams(max_tokens=90, ignore_eos=True, n=3)
        finish([llm.submit(HEAD, params), llm.submit("Something else", SamplingParams(max_tokens=60, ignore_eos=True))])
        view = look(llm)
        record = next(record for record in llm.history() if len(record.finish_reasons) == 3)
        rows = by_label(view)
        labels = [record.request_id, f"{record.request_id}/1", f"{record.request_id}/2"]
        assert [rows[label].num_output_tokens for label in labels] == [90, 90, 90]
        lost = sum(span.kind == "preempted" for row in view.rows for span in row.spans)
        assert lost == llm.snapshot().counters.preemptions > 0
        assert sum(len(step.lost) for step in view.steps) == lost
        assert sum(len(step.record.blocks.evicted) for step in view.steps) == llm.snapshot().counters.evictions
        assert len(look(llm, request=record.request_id).rows) == 3


def test_cancelled_while_waiting_and_while_running() -> None:
    with LLM("tiny", num_blocks=64, max_num_seqs=1) as llm:
        long = SamplingParams(max_tokens=400, ignore_eos=True)
        running, waiting = llm.submit(HEAD, long), llm.submit("It waits", long)
        while not look(llm).rows or running.request_id not in by_label(look(llm)):
            assert not running.done
        live = by_label(look(llm))
        assert live[running.request_id].end is None and live[waiting.request_id].state == "waiting"
        waiting.cancel()
        finish([waiting])
        running.cancel()
        finish([running])
        rows = by_label(look(llm))
        for generation in (running, waiting):
            end = rows[generation.request_id].end
            assert end is not None and end.reason == "cancelled"
        assert {span.kind for span in rows[waiting.request_id].spans} <= {"waiting"}
        assert rows[running.request_id].num_output_tokens == len(running.result().outputs[0].token_ids)
        assert rows[waiting.request_id].num_output_tokens == 0


def test_the_ring_forgets_and_counts() -> None:
    with LLM("tiny", num_blocks=64, recorder_steps=8) as llm:
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        for number in range(5):
            llm.generate([f"{number} is a number"], params, use_tqdm=False)
        view = look(llm)
        assert len(view.steps) == 8
        assert view.finished_earlier + len(view.rows) == 5 == sum(llm.snapshot().counters.requests.values())
        after = look(llm)
        assert after.rows == view.rows
