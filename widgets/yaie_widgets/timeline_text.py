"""The timeline for a terminal: the same figures as the drawing, one character for a step."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from .figures import TIMES, count, counted, seconds
from .safe_text import columns, pad, shorten, visible
from .timeline_model import TimelineRow, TimelineView, request_of
from .timeline_panel import batch_lines, block_figures, step_seconds, time_figures

EMPTY_WORDS = "No step recorded yet. Run a %%generate cell."
LEGEND = (
    "· waiting   C cached, then prefill   P prefill   = decode   x preempted   s swapped   - paused",
    f"● stop   ■ length   {TIMES} cancelled or failed",
)
_CHARS = {"waiting": "·", "prefill": "P", "decode": "=", "preempted": "x", "swapped": "s", "paused": "-"}
# Of several steps in one character, the rarest tells most.
_RANK = "CxsP=-·"
_ENDS = {"stop": "●", "finished": "○", "length": "■"}
_MAX_COLUMNS = 60
_MAX_LINES = 60


def timeline_text(view: TimelineView, timed: bool) -> str:
    """Window, one line for each request, and the newest step."""
    if not view.steps:
        return EMPTY_WORDS
    return "\n".join(line.rstrip() for line in [*_head(view, timed), *_rows(view), "", *_panel(view, timed)])


def window_words(view: TimelineView, timed: bool) -> str:
    """What is shown: `4 requests · steps 1 to 60 · 1.2 s`."""
    first, last = view.steps[0], view.steps[-1]
    requests = len({request_of(row.label) for row in view.rows})
    number = len(view.rows) + view.hidden
    steps = f"steps {count(first.record.step)} to {count(last.record.step)}"
    if len(view.steps) == 1:
        steps = f"step {count(last.record.step)}"
    named = f"request {shorten(view.request, 30)}" if view.request else counted(requests, "request")
    words = [named if requests == number else f"{named} in {counted(number, 'row')}", steps]
    if timed:
        words.append(seconds(max(0.0, last.at - first.at + step_seconds(first))))
    if event_words(view):
        words.append(event_words(view))
    if last.record.step < view.newest:
        words.append(f"output as of step {count(view.newest)}")
    return " · ".join(words)


def more_words(view: TimelineView) -> str:
    """What has no row: `+3 finished earlier`."""
    parts = [f"+{count(view.hidden)} more in these steps"] if view.hidden else []
    return "   ".join([*parts, f"+{count(view.finished_earlier)} finished earlier"] if view.finished_earlier else parts)


def event_words(view: TimelineView) -> str:
    """What happened in the window besides work: `2 preemptions, 1 swapped · 31 blocks evicted`, or nothing."""
    lost = sum(len(step.lost) for step in view.steps)
    swapped = sum(len(step.lost_as("swapped")) for step in view.steps)
    evicted = sum(len(step.record.blocks.evicted) for step in view.steps)
    words = [counted(lost, "preemption") + (f", {count(swapped)} swapped" if swapped else "")] if lost else []
    return " · ".join([*words, f"{counted(evicted, 'block')} evicted"] if evicted else words)


def _head(view: TimelineView, timed: bool) -> Iterator[str]:
    most = max(step.tokens for step in view.steps)
    budget = f" of {count(view.budget)}" if view.budget else ""
    yield f"Scheduler timeline   {window_words(view, timed)}"
    yield f"  tokens per step: newest {count(view.steps[-1].tokens)}, largest {count(most)}{budget}"
    yield from (f"  {line}" for line in LEGEND)


def _rows(view: TimelineView) -> Iterator[str]:
    shown = view.rows[:_MAX_LINES]
    names = [shorten(row.label, 20) for row in shown]
    width = max([7, *(columns(name) for name in names)])
    each = max(1, ceil(len(view.steps) / _MAX_COLUMNS))
    room = ceil(len(view.steps) / each) + 1
    scale = f"{counted(each, 'step')} a sign"
    yield f"  {pad('request', width)}  {pad(scale, max(room, len(scale)))}  state      prompt  cached  output"
    for name, row in zip(names, shown, strict=True):
        figures = (row.num_prompt_tokens, row.num_cached_tokens, row.num_output_tokens)
        cells = "".join(f"{'—' if number is None else count(number):>8}" for number in figures)
        bars = pad(_bars(row, len(view.steps), each), max(room, len(scale)))
        yield f"  {pad(name, width)}  {bars}  {row.state:<9}{cells}"
    if len(view.rows) > len(shown):
        yield f"  +{count(len(view.rows) - len(shown))} more rows"
    if more_words(view):
        yield f"  {more_words(view)}"


def _bars(row: TimelineRow, number: int, each: int) -> str:
    signs = [" "] * number
    for span in row.spans:
        signs[span.first : span.last + 1] = _CHARS[span.kind] * (span.last - span.first + 1)
        if span.cached:
            signs[span.first] = "C"
    merged = [_rarest(signs[at : at + each]) for at in range(0, number, each)] + [" "]
    if row.end is not None:
        merged[ceil(row.end.column / each)] = _ENDS.get(row.end.reason, TIMES)
    return "".join(merged)


def _rarest(signs: list[str]) -> str:
    return next((sign for sign in _RANK if sign in signs), " ")


def _panel(view: TimelineView, timed: bool) -> Iterator[str]:
    step = view.steps[-1]
    yield f"Step {count(step.record.step)}   {counted(step.tokens, 'token')}"
    for label, work, cached, tokens in batch_lines(step)[:_MAX_LINES]:
        from_cache = f"   {cached} cached" if cached else ""
        yield f"  {pad(shorten(label, 20), 20)}  {work:<9} {tokens:>7}{from_cache}"
    if len(step.record.batch) > _MAX_LINES:
        yield f"  +{count(len(step.record.batch) - _MAX_LINES)} more"
    yield "  blocks: " + ", ".join(f"{name.lower()} {figure}" for name, figure in block_figures(view, step))
    if timed:
        whole = seconds(step_seconds(step))
        phases = ", ".join(f"{phase} {seconds(ms / 1000)}" for phase, ms in time_figures(step))
        yield visible(f"  time: {whole}: {phases}")
