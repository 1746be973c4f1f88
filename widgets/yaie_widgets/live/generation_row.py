"""One request, or one choice of it, in words and figures: the same for the live view and for its static twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from yaie_widgets.figures import count, counted

from .generation_prompt import PromptView

if TYPE_CHECKING:
    from yaie_engine.outputs import RequestOutput
    from yaie_engine.progress import Progress

DASH: Final = "—"
ENDED: Final = ("finished", "cancelled", "failed")
RUNNING: Final = ("prefill", "decode")
Stat = tuple[str, str, str]  # name, figure, unit


@dataclass(frozen=True, slots=True)
class Row:
    """What is shown of it besides its text.

    `mark` names the sign before `status`; `size` tells the prompt's length and `parts` what of it was cached and
    computed; `bar` is cached, computed and output tokens, then the tokens of the prompt and of all there can be.
    """

    id: str
    state: str
    mark: str
    status: str
    size: str
    parts: tuple[str, str]
    bar: tuple[int, int, int, int, int]
    stats: tuple[Stat, ...]
    note: str = ""
    prompt: PromptView = field(default_factory=PromptView)
    stopping: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing changes any more."""
        return self.state in ENDED

    def to_dict(self, before: Row | None = None) -> dict[str, Any]:
        """The fields as JSON-able data; with `before` only what has changed since."""
        names = [each.name for each in fields(self)]
        changed = [name for name in names if before is None or getattr(before, name) != getattr(self, name)]
        return {name: self.prompt.to_dict() if name == "prompt" else getattr(self, name) for name in changed}


def live_row(label: str, progress: Progress, prompt: PromptView, stopping: bool) -> Row:
    """A request that runs or waits."""
    facts = progress.facts
    cached, output = facts.num_cached_tokens, facts.num_output_tokens
    computed = min(progress.num_computed_tokens, facts.num_prompt_tokens)
    rate = _rate(progress.tpot_s)
    return Row(
        id=label,
        state=facts.state,
        mark=facts.state,
        status=_status(progress),
        size=_size(facts.num_prompt_tokens),
        parts=_parts(cached, computed),
        bar=_bar(facts.num_prompt_tokens, cached, computed, output, progress.max_tokens),
        stats=(
            (
                "Output",
                f"{count(output)} of {count(progress.max_tokens)}" if facts.num_prompt_tokens else DASH,
                "tokens",
            ),
            ("Rate", *rate),
            ("First token", *_time(facts.ttft_s)),
            ("Queue", *_time(facts.queue_s)),
            ("Elapsed", *_time(progress.elapsed_s, coarse=True)),
            ("Cached", *_cached(cached, facts.num_prompt_tokens)),
            ("Step", DASH if progress.last_step is None else count(progress.last_step), ""),
        ),
        prompt=prompt,
        stopping=stopping,
    )


def final_row(
    label: str, output: RequestOutput, index: int, prompt: PromptView, model: str = "", times: bool = True
) -> Row:
    """A request that has ended. Without `times` nothing differs between two equal runs."""
    choice, metrics = output.outputs[index], output.metrics
    told, made = output.num_prompt_tokens, output.num_output_tokens(index)
    num_prompt, tokens = told or 0, made or 0
    known = output.counts is None and (metrics.first_step is not None or bool(tokens))
    cached = output.num_cached_tokens if known else None if output.counts is None else output.counts.cached
    computed = num_prompt if tokens or made is None else min((cached or 0) + metrics.num_computed_tokens, num_prompt)
    tpot = metrics.tpot_s if len(output.outputs) == 1 or tokens > 1 else None
    timed: tuple[Stat, ...] = (
        ("Rate", *_rate(tpot)),
        ("First token", *_time(metrics.ttft_s)),
        ("Queue", *_time(metrics.queue_s if known else None)),
        ("Total", *_time(metrics.total_s)),
    )
    state = {"cancelled": "cancelled", "error": "failed"}.get(choice.finish_reason or "", "finished")
    return Row(
        id=label,
        state=state,
        mark=choice.finish_reason if state == "finished" and choice.finish_reason else state,
        status=_ending(output, index),
        size=_size(num_prompt),
        parts=_parts(cached, computed),
        bar=_bar(num_prompt, cached, computed, tokens, tokens),
        stats=(
            ("Output", *((DASH, "") if made is None else (count(tokens), "token" if tokens == 1 else "tokens"))),
            *(timed if times else ()),
            ("Cached", *_cached(cached, num_prompt)),
            ("Preempted", count(metrics.num_preemptions), "time" if metrics.num_preemptions == 1 else "times"),
        ),
        note=" · ".join(filter(None, (model, _steps(metrics.first_step, metrics.last_step) if times else ""))),
        prompt=prompt,
    )


def tally(rows: Iterable[Row], total: int, noun: str) -> str:
    """`200 requests · 187 finished · 8 running · 5 waiting` over rows and those that were not sent yet."""
    states: Counter[str] = Counter()
    number = 0
    for row in rows:
        number += 1
        queued = row.state in ("preempted", "swapped")
        states["waiting" if queued else "running" if row.state in RUNNING else row.state] += 1
    states["waiting"] += max(total - number, 0)
    order = ("finished", "failed", "cancelled", "running", "waiting")
    counts = (f"{count(states[state])} {state}" for state in order if states[state])
    return " · ".join((counted(max(total, number), noun), *counts))


def _size(tokens: int) -> str:
    return f"Prompt {counted(tokens, 'token')}" if tokens else "Prompt"  # no prompt is empty: the number is not known


def _parts(cached: int | None, computed: int) -> tuple[str, str]:
    if cached is None:
        return f"{DASH} cached", f"{DASH} computed"
    return f"{count(cached)} cached", f"{count(max(computed - cached, 0))} computed"


def _status(progress: Progress) -> str:
    state = progress.facts.state
    if state == "waiting" and progress.ahead:
        return f"waiting, {count(progress.ahead)} ahead"
    if state == "prefill":
        return f"prefill, {count(progress.num_computed_tokens)} of {count(progress.prefill_end)}"
    return state


def _ending(output: RequestOutput, index: int) -> str:
    choice = output.outputs[index]
    if choice.finish_reason == "cancelled":
        tokens = len(choice.token_ids)
        return f"cancelled · {count(tokens)} {'token' if tokens == 1 else 'tokens'} kept"
    if choice.finish_reason == "error":
        error = output.error
        return f"failed · {type(error).__name__}: {error}" if error is not None else "failed"
    if choice.finish_reason == "stop":
        reason = choice.stop_reason
        words = "end of text" if reason is None else f"token {reason}" if isinstance(reason, int) else repr(reason)
        return f"finished · stop ({words})"
    return f"finished · {choice.finish_reason}"


def _bar(prompt: int, cached: int | None, computed: int, output: int, most: int) -> tuple[int, int, int, int, int]:
    held = min(cached or 0, prompt)
    return held, max(computed - held, 0), output, max(prompt, 1), max(prompt + most, 1)


def _cached(cached: int | None, prompt: int) -> tuple[str, str]:
    return (DASH, "") if cached is None else (f"{count(cached)} of {count(prompt)}", "tokens")


def _rate(tpot_s: float | None) -> tuple[str, str]:
    return (f"{1 / tpot_s:,.1f}", "tok/s") if tpot_s else (DASH, "")


def _time(seconds: float | None, coarse: bool = False) -> tuple[str, str]:
    """Milliseconds below ten seconds; `coarse` ones change ten times a second, so that a clock costs little."""
    if seconds is None:
        return DASH, ""
    if seconds >= 10:
        return f"{seconds:,.1f}", "s"
    return count(round(seconds * 10) * 100 if coarse else round(seconds * 1000)), "ms"


def _steps(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return ""
    return f"step {count(first)}" if first == last else f"step {count(first)} to {count(last)}"
