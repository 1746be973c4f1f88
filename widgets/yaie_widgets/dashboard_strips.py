"""The six strips of the dashboard: what each shows of a step, on which scale, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Literal

from .dashboard_model import DashboardView, StepFigures
from .figures import count

Value = Callable[[StepFigures], float]
Look = Literal["bar", "line", "dots"]
NONE = "—"


@dataclass(frozen=True, slots=True)
class Part:
    """One series: bars stack in the order of the parts, lines do not."""

    word: str
    role: str
    look: Look
    value: Value


@dataclass(frozen=True, slots=True)
class Strip:
    """`top` is the value at the upper edge, `limit` says whether that is a limit, `words` are those of one step."""

    title: str
    parts: tuple[Part, ...]
    top: Callable[[DashboardView], float]
    edge: Callable[[DashboardView], str]
    words: Callable[[DashboardView, StepFigures], tuple[str, str]]
    limit: bool = False
    timed: bool = False

    @property
    def stacked(self) -> bool:
        """Whether its parts are bars."""
        return self.parts[0].look == "bar"

    def height(self, step: StepFigures) -> float:
        """Of a stack, all of it; of lines, the first."""
        return sum(part.value(step) for part in self.parts) if self.stacked else self.parts[0].value(step)


def decimal(value: float, digits: int = 1) -> str:
    """A figure with so many decimals. Halves go up, as in the page of the live view."""
    return f"{floor(value * 10**digits + 0.5) / 10**digits:,.{digits}f}"


def milliseconds(value: float) -> str:
    """`56.3 ms`, or `12.3 s` from ten seconds on."""
    return f"{decimal(value / 1000)} s" if value >= 10_000 else f"{decimal(value)} ms"


def _most(view: DashboardView, *values: Value) -> float:
    return max((value(step) for step in view.steps for value in values), default=0)


def _cut_top(view: DashboardView, value: Value) -> float:
    """The upper edge of measured values. One that is far beyond all others (a first step that compiles) would hide
    them: it is cut off there, and marked."""
    values = sorted(value(step) for step in view.steps)
    if not values:
        return 0.0
    largest, usual = values[-1], values[int(0.98 * (len(values) - 1))]
    return 1.25 * usual if len(values) >= 10 and largest > 4 * usual > 0 else largest


def _budget(view: DashboardView) -> float:
    return max(_most(view, lambda step: step.tokens), view.budget or 0)


def _blocks(view: DashboardView) -> float:
    return view.num_blocks or _most(view, lambda step: step.shared + step.held + step.cached)


def _hit_words(view: DashboardView, step: StepFigures) -> tuple[str, str]:
    rate = NONE if step.hit_rate is None else f"{decimal(step.hit_rate)} %"
    return rate, "of prompt tok"


def _token_words(view: DashboardView, step: StepFigures) -> tuple[str, str]:
    return f"{count(step.tokens)} tok", f"of {count(view.budget)}" if view.budget else ""


STRIPS = (
    Strip(
        "Requests",
        (
            Part("running", "ink", "line", lambda step: step.running),
            Part("queued", "ink", "dots", lambda step: step.queued),
        ),
        lambda view: _most(view, lambda step: step.running, lambda step: step.queued),
        lambda view: f"most {count(int(_most(view, lambda step: step.running, lambda step: step.queued)))}",
        lambda view, step: (f"{count(step.running)} running", f"{count(step.queued)} queued"),
    ),
    Strip(
        "Tokens per step",
        (
            Part("prefill", "prefill", "bar", lambda step: step.prefill),
            Part("decode", "decode", "bar", lambda step: step.decode),
        ),
        _budget,
        lambda view: f"budget {count(view.budget)}" if view.budget else f"most {count(int(_budget(view)))}",
        _token_words,
        limit=True,
    ),
    Strip(
        "KV blocks",
        (
            Part("shared", "shared", "bar", lambda step: step.shared),
            Part("held", "held", "bar", lambda step: step.held),
            Part("cached", "cached", "bar", lambda step: step.cached),
        ),
        _blocks,
        lambda view: f"{count(int(_blocks(view)))} blocks",
        lambda view, step: (f"{count(step.shared + step.held)} held", f"{count(step.cached)} cached"),
        limit=True,
    ),
    Strip(
        "Cache hit rate",
        (Part("all so far", "cached", "line", lambda step: step.hit_rate or 0.0),),
        lambda view: 100,
        lambda view: "100 %",
        _hit_words,
        limit=True,
    ),
    Strip(
        "Output rate",
        (Part("each step", "decode", "line", lambda step: step.rate),),
        lambda view: _cut_top(view, lambda step: step.rate),
        lambda view: f"most {decimal(_most(view, lambda step: step.rate), 0)} tok/s",
        lambda view, step: (f"{decimal(step.rate, 0)} tok/s", f"{count(step.output)} in the step"),
        timed=True,
    ),
    Strip(
        "Step time",
        (
            Part("forward", "g2", "bar", lambda step: step.forward_ms),
            Part("other", "ink", "bar", lambda step: step.total_ms - step.forward_ms),
        ),
        lambda view: _cut_top(view, lambda step: step.total_ms),
        lambda view: f"most {milliseconds(_most(view, lambda step: step.total_ms))}",
        lambda view, step: (milliseconds(step.total_ms), f"{decimal(step.forward_ms)} forward"),
        timed=True,
    ),
)


def total_words(view: DashboardView) -> list[tuple[str, str]]:
    """Totals as (name, figure)."""
    totals = view.totals
    memory = view.engine.get("memory")
    words = [
        ("Running", count(totals.running)),
        ("Queued", count(totals.queued)),
        ("Ended", f"{count(totals.ended)} of {count(totals.requests)}"),
        ("Prompt tokens", count(totals.prompt)),
        ("Output tokens", count(totals.output)),
        ("Preemptions", count(totals.preemptions) + (f", {count(totals.swaps)} swapped" if totals.swaps else "")),
        ("Evictions", count(totals.evictions)),
        ("Copies", count(totals.copies)),
    ]
    return [*words, ("Memory", mebibytes(memory))] if memory else words


def mebibytes(size: int) -> str:
    """Bytes in MiB, without a fraction."""
    return f"{decimal(size / 2**20, 0)} MiB"


def engine_words(view: DashboardView) -> str:
    """`tiny · float32 · cpu · reference attention · flat tier`."""
    engine = view.engine
    backend, tier = engine.get("attention_backend"), engine.get("tier")
    parts = [engine.get("name"), engine.get("dtype"), engine.get("device")]
    parts += [f"{backend} attention" if backend else "", f"{tier} tier" if tier else ""]
    return " · ".join(part for part in parts if part)
