"""The lower part of the timeline drawing: one step in figures, with its batch, its blocks and its time."""

from __future__ import annotations

from dataclasses import dataclass

from .figures import count, counted, seconds
from .safe_text import shorten
from .shapes import Canvas, fitted
from .timeline_model import TimelineStep, TimelineView
from .timeline_plot import PAD, WIDTH

HEIGHT = 232.0
_LINE = 19.0
_SHOWN = 8
_BATCH, _BLOCKS, _TIME = (PAD, 352.0), (390.0, 590.0), (630.0, WIDTH - PAD)
PHASES = ("schedule", "forward", "sample", "publish")
_ROLES = {"schedule": "g1", "forward": "g2", "sample": "g3", "publish": "edge"}


@dataclass(frozen=True, slots=True)
class Work:
    """A line of the batch table. `tokens` is None for a request that lost its place."""

    label: str
    work: str
    cached: int
    tokens: int | None


def batch_of(step: TimelineStep) -> list[Work]:
    """What the step did: prefill chunks first, then decodes, then who lost its place."""
    entries = sorted(step.record.batch, key=lambda entry: entry.kind == "decode")
    found = [Work(e.request_id, e.kind, step.admitted.get(e.request_id, 0), e.num_tokens) for e in entries]
    running = {work.label for work in found}
    return found + [Work(name, state, 0, None) for name, state in step.lost.items() if name not in running]


def block_figures(view: TimelineView, step: TimelineStep) -> list[tuple[str, str]]:
    """What the step did to blocks, then how many there are of each kind after it."""
    events = step.record.blocks
    names = ("Allocated", "Freed", "Evicted", "Copied")
    numbers = (events.allocated, events.freed, events.evicted, events.copied)
    figures = [(name, count(len(blocks))) for name, blocks in zip(names, numbers, strict=True)]
    out = sum(target < 0 for _, target in events.swapped)  # a block of the host has a number below 0
    swaps = f"{count(out)} out + {count(len(events.swapped) - out)} in" if events.swapped else "0"
    figures.append(("Swapped", swaps))
    if view.num_blocks:
        free = view.num_blocks - step.num_held - step.num_cached
        after = zip(("Free", "Cached", "Held"), (free, step.num_cached, step.num_held), strict=True)
        figures += [(name, count(number)) for name, number in after]
    return figures


def time_figures(step: TimelineStep) -> list[tuple[str, float]]:
    """Milliseconds by phase."""
    return [(phase, getattr(step.record.ms, phase)) for phase in PHASES]


def step_seconds(step: TimelineStep) -> float:
    """The whole step."""
    return sum(ms for _, ms in time_figures(step)) / 1000


def draw_panel(canvas: Canvas, view: TimelineView, top: float, timed: bool) -> None:
    """The newest step of the window, in a fixed height."""
    canvas.path(f"M0,{top + 0.5:g}H{WIDTH:g}", stroke="line")
    step = view.steps[-1]
    _batch(canvas, view, step, top)
    _blocks(canvas, view, step, top)
    if timed:
        _time(canvas, step, top)


def _batch(canvas: Canvas, view: TimelineView, step: TimelineStep, top: float) -> None:
    left, right = _BATCH
    canvas.text(left, top + 22, f"Step {count(step.record.step)}", 12, bold=True)
    used = f"{count(step.tokens)} of {count(view.budget)} tokens" if view.budget else counted(step.tokens, "token")
    canvas.text(right, top + 22, used, 12, end=True)
    y = top + 42
    canvas.text(left, y, "Request", 11, "ink2")
    canvas.text(left + 120, y, "Work", 11, "ink2")
    canvas.text(right - 70, y, "Cached", 11, "ink2", end=True)
    canvas.text(right, y, "Tokens", 11, "ink2", end=True)
    works = batch_of(step)
    shown = works if len(works) <= _SHOWN + 1 else works[:_SHOWN]
    for work in shown:
        y += _LINE
        canvas.text(left, y, fitted(shorten(work.label, 16), 12, 112))
        _swatch(canvas, left + 120, y, work.work)
        canvas.text(left + 138, y, work.work)
        for edge, figure in zip((right - 70, right), _figures(work), strict=True):
            canvas.text(edge, y, figure, end=True)
    if len(shown) < len(works):
        rest = works[len(shown) :]
        canvas.text(left, y + _LINE, f"+{count(len(rest))} more", role="ink2")
        canvas.text(right, y + _LINE, count(sum(work.tokens or 0 for work in rest)), role="ink2", end=True)


def _swatch(canvas: Canvas, x: float, baseline: float, kind: str) -> None:
    """The mark of a kind of work, 12 px wide."""
    middle = baseline - 4
    if kind == "prefill":
        canvas.rect(x, middle - 5, 12, 10, "prefill")
    elif kind == "decode":
        canvas.rect(x, middle - 2.5, 12, 5, "decode")
    else:
        canvas.hatch(x, middle - 4, 12, 8, "swapped" if kind == "swapped" else "lost")


def _blocks(canvas: Canvas, view: TimelineView, step: TimelineStep, top: float) -> None:
    left, right = _BLOCKS
    canvas.text(left, top + 22, "Blocks", 12, bold=True)
    if view.num_blocks:
        canvas.text(right, top + 22, counted(view.num_blocks, "block"), 12, end=True)
    y = top + 42
    for name, figure in block_figures(view, step):
        if name == "Free":
            canvas.text(left, y + 2, "After the step", 11, "ink2")
            y += _LINE + 2
        canvas.text(left, y, name)
        canvas.text(right, y, figure, end=True)
        y += _LINE


def _time(canvas: Canvas, step: TimelineStep, top: float) -> None:
    left, right = _TIME
    whole = step_seconds(step)
    canvas.text(left, top + 22, "Time", 12, bold=True)
    canvas.text(right, top + 22, seconds(whole), 12, end=True)
    x, width = left, right - left
    for phase, ms in time_figures(step):
        part = width * ms / (whole * 1000) if whole else 0.0
        if part >= 0.3:
            _phase(canvas, phase, x, top + 34, max(part - 0.8, 0.3), f"{phase} {seconds(ms / 1000)}")
        x += part
    y = top + 64
    for phase, ms in time_figures(step):
        _phase(canvas, phase, left, y - 9, 10)
        canvas.text(left + 18, y, phase)
        share = f"{100 * ms / (whole * 1000):.0f} %" if whole else "—"
        canvas.text(right - 70, y, seconds(ms / 1000), end=True)
        canvas.text(right, y, share, end=True)
        y += _LINE


def _phase(canvas: Canvas, phase: str, x: float, y: float, width: float, title: str = "") -> None:
    """A part of the time bar. Publishing is hollow: a fourth grey would look like one of the three."""
    if phase == "publish" and width > 3:
        canvas.rect(x + 0.5, y + 0.5, width - 1, 9, "bg", "edge", title)
    else:
        canvas.rect(x, y, width, 10, _ROLES[phase], title=title)


def batch_lines(step: TimelineStep) -> list[tuple[str, ...]]:
    """The batch table for the text form."""
    return [(work.label, work.work, *_figures(work)) for work in batch_of(step)]


def _figures(work: Work) -> tuple[str, str]:
    """Cached and computed tokens: no figure where nothing was cached, a dash where nothing ran."""
    return count(work.cached) if work.cached else "", "—" if work.tokens is None else count(work.tokens)
