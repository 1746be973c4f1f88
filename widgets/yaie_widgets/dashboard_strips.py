"""The six strips of the dashboard: what each shows of a step, on which scale, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


def milliseconds(value: float) -> str:
    """`56.3 ms`, or `12.3 s` from ten seconds on."""
    return f"{value / 1000:,.1f} s" if value >= 10_000 else f"{value:,.1f} ms"


def _most(view: DashboardView, *values: Value) -> float:
    return max((value(step) for step in view.steps for value in values), default=0)


def _budget(view: DashboardView) -> float:
    return max(_most(view, lambda step: step.tokens), view.budget or 0)


def _blocks(view: DashboardView) -> float:
    return view.num_blocks or _most(view, lambda step: step.shared + step.held + step.cached)


def _hit_words(view: DashboardView, step: StepFigures) -> tuple[str, str]:
    rate = NONE if step.hit_rate is None else f"{step.hit_rate:.1f} %"
    return rate, "of prompt tokens"


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
        lambda view: _most(view, lambda step: step.rate),
        lambda view: f"most {_most(view, lambda step: step.rate):,.0f} tok/s",
        lambda view, step: (f"{step.rate:,.0f} tok/s", f"{count(step.output)} in the step"),
        timed=True,
    ),
    Strip(
        "Step time",
        (
            Part("forward", "g2", "bar", lambda step: step.forward_ms),
            Part("other", "ink", "bar", lambda step: step.total_ms - step.forward_ms),
        ),
        lambda view: _most(view, lambda step: step.total_ms),
        lambda view: f"most {milliseconds(_most(view, lambda step: step.total_ms))}",
        lambda view, step: (milliseconds(step.total_ms), f"{step.forward_ms:,.1f} forward"),
        timed=True,
    ),
)


def total_words(view: DashboardView) -> list[tuple[str, str, str]]:
    """Totals as (name, figure, unit)."""
    totals = view.totals
    memory = view.engine.get("memory")
    words = [
        ("Running", count(totals.running), "requests"),
        ("Queued", count(totals.queued), "requests"),
        ("Ended", f"{count(totals.ended)} of {count(totals.requests)}", ""),
        ("Prompt", count(totals.prompt), "tokens"),
        ("Output", count(totals.output), "tokens"),
        ("Preemptions", count(totals.preemptions), ""),
        ("Evictions", count(totals.evictions), "blocks"),
        ("Copies", count(totals.copies), "blocks"),
    ]
    return [*words, ("Memory", mebibytes(memory), "MiB")] if memory else words


def mebibytes(size: int) -> str:
    """Bytes in MiB, without a fraction."""
    return f"{round(size / 2**20):,}"


def engine_words(view: DashboardView) -> str:
    """`tiny · float32 · cpu · reference attention · flat tier`."""
    engine = view.engine
    backend, tier = engine.get("attention_backend"), engine.get("tier")
    parts = [engine.get("name"), engine.get("dtype"), engine.get("device")]
    parts += [f"{backend} attention" if backend else "", f"{tier} tier" if tier else ""]
    return " · ".join(part for part in parts if part)
