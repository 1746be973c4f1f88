"""The recorder's steps as a Chrome trace, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie_engine.errors import RequestError
from yaie_engine.record import RequestRecord

from .figures import counted
from .safe_text import visible
from .timeline_model import TimelineRow, TimelineStep, TimelineView
from .timeline_panel import PHASES, time_figures

ENGINE, REQUESTS = 1, 2
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Clock:
    """Start and end of each step in microseconds since the first began; no step begins before the one before ended."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    epoch: float

    @classmethod
    def of(cls, steps: Sequence[TimelineStep]) -> _Clock:
        epoch = steps[0].at - _total_us(steps[0]) / 1e6 if steps else 0.0
        starts: list[float] = []
        ends: list[float] = []
        for step in steps:
            # The wall clock may be set back, and its grain is not that of the phases.
            end = max((step.at - epoch) * 1e6, ends[-1] if ends else 0.0)
            starts.append(max(end - _total_us(step), ends[-1] if ends else 0.0))
            ends.append(end)
        return cls(tuple(starts), tuple(ends), epoch)

    def column(self, edge: int) -> float:
        """The time at which a column begins; past the last, at which that ends."""
        return self.starts[edge] if edge < len(self.starts) else self.ends[-1]


def chrome_trace(view: TimelineView, history: Sequence[RequestRecord] = ()) -> dict[str, Any]:
    """The window as a trace: phases of the engine, a track for each request, and counters.

    Timestamps are microseconds since the first step began. `history` says when a request was queued; without it the
    end of the step before stands for it.
    """
    clock = _Clock.of(view.steps)
    submitted = {record.request_id: record.submitted_at for record in history}
    events: list[Event] = []
    for column, step in enumerate(view.steps):
        events += _phases(step, clock.starts[column], clock.ends[column])
        events += _counters(view, step, clock.ends[column])
    for track, row in enumerate(view.rows, 1):
        events += _slices(row, track, clock, submitted.get(_request_of(row.label, submitted)))
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))
    start = int(clock.epoch * 1e6) if view.steps else 0
    return {
        "traceEvents": [*_names(view), *events],
        "displayTimeUnit": "ms",
        "otherData": {"begin_unix_us": start, "newest_step": view.newest},
    }


def save_trace(view: TimelineView, path: str | Path, history: Sequence[RequestRecord] = ()) -> Path:
    """Write the trace as JSON and return the path.

    Raises:
        RequestError: the file cannot be written.
    """
    target = Path(path)
    try:
        target.write_text(json.dumps(chrome_trace(view, history), separators=(",", ":")), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot save {target}: {error.strerror or error}") from None
    return target


def _request_of(label: str, submitted: dict[str, float]) -> str:
    """The request of a choice's label."""
    return label if label in submitted else label.rpartition("/")[0]


def _total_us(step: TimelineStep) -> float:
    return sum(ms for _, ms in time_figures(step)) * 1000


def _phases(step: TimelineStep, start: float, end: float) -> list[Event]:
    """One slice for each phase, one after the other; squeezed where the wall clock leaves less time."""
    total = _total_us(step)
    scale = min(1.0, (end - start) / total) if total else 0.0
    slices = []
    for track, (phase, ms) in enumerate(time_figures(step), 1):
        figures = {"step": step.record.step, "ms": ms}
        if phase == "forward":
            figures |= {"prefill": step.record.num_prefill_tokens, "decode": step.record.num_decode_tokens}
        length = ms * 1000 * scale
        slices.append(_slice(phase, "engine", ENGINE, track, start, length, figures))
        start += length
    return slices


def _counters(view: TimelineView, step: TimelineStep, at: float) -> list[Event]:
    tokens = {"prefill": step.record.num_prefill_tokens, "decode": step.record.num_decode_tokens}
    blocks = {"held": step.num_held, "cached": step.num_cached}
    if view.num_blocks:
        blocks["free"] = view.num_blocks - step.num_held - step.num_cached
    return [
        {"name": name, "cat": "engine", "ph": "C", "ts": _us(at), "pid": ENGINE, "tid": 0, "args": values}
        for name, values in (("tokens", tokens), ("blocks", blocks))
    ]


def _slices(row: TimelineRow, track: int, clock: _Clock, submitted_at: float | None) -> list[Event]:
    """A row's spans; work lasts from the start of its first step to the end of its last."""
    found: list[Event] = []
    for number, span in enumerate(row.spans):
        start, end = clock.starts[span.first], clock.ends[span.last]
        if span.kind in ("waiting", "preempted", "swapped", "paused"):
            # It goes on until the next step begins.
            end = clock.column(span.last + 1)
        if span.kind == "waiting" and number == 0 and submitted_at is not None:
            start = min(max((submitted_at - clock.epoch) * 1e6, 0.0), start)
        figures: dict[str, Any] = {"request": visible(row.label), "tokens": span.tokens}
        if span.cached:
            figures["cached"] = span.cached
        found.append(_slice(span.kind, "request", REQUESTS, track, start, end - start, figures))
    if row.end is not None:
        edge = row.end.column
        at = clock.ends[edge - 1] if edge else clock.starts[0]
        words = {"output_tokens": row.num_output_tokens}
        event = {"name": row.end.reason, "cat": "request", "ph": "i", "ts": _us(at), "s": "t", "args": words}
        found.append({**event, "pid": REQUESTS, "tid": track})
    return found


def _slice(name: str, kind: str, pid: int, tid: int, start: float, length: float, figures: dict[str, Any]) -> Event:
    event = {"name": name, "cat": kind, "ph": "X", "ts": _us(start), "dur": _us(max(length, 0.0))}
    return {**event, "pid": pid, "tid": tid, "args": figures}


def _us(value: float) -> float:
    """Nanoseconds at most: what is finer is noise."""
    return round(value, 3)


def _names(view: TimelineView) -> list[Event]:
    """Names and order of processes and tracks."""
    found = [_meta("process_name", ENGINE, 0, "engine"), _meta("process_name", REQUESTS, 0, "requests")]
    found += [_meta("thread_name", ENGINE, track, phase) for track, phase in enumerate(PHASES, 1)]
    found += [_meta("thread_name", REQUESTS, track, visible(row.label)) for track, row in enumerate(view.rows, 1)]
    tracks = [(ENGINE, track) for track in range(1, len(PHASES) + 1)]
    tracks += [(REQUESTS, track) for track in range(1, len(view.rows) + 1)]
    order = [
        {"name": "thread_sort_index", "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"sort_index": tid}}
        for pid, tid in tracks
    ]
    return [*found, *order]


def _meta(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}


def trace_words(view: TimelineView, target: Path) -> str:
    """What was written, in one line."""
    steps = counted(len(view.steps), "step")
    return f"Trace of {steps} and {counted(len(view.rows), 'row')} in {target}: open it at https://ui.perfetto.dev"
