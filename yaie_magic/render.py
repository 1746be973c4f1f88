"""Completions as plain text, HTML, Markdown and JSON. Model text is always escaped; there is no script."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from yaie_widgets import mode
from yaie_widgets.live.generation_twin import generation_html, stacked_html
from yaie_widgets.safe_text import escape_text

from .completion import Completion

# JupyterLab breaks the words of every <pre> anywhere; a text is read, so its lines end between words.
_TEXT = (
    "margin:0;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;max-width:78ch;background:none;font:inherit"
)
SOURCES = {"host": " (host blocks)", "store": " (prefix store)", "state": " (kept state)"}
_NOTE = "margin-top:4px;font-size:11px;font-variant-numeric:tabular-nums"
_COLOURS = "color:var(--jp-ui-font-color1, var(--vscode-foreground, currentColor))"
Bundle = dict[str, Any]


def static_mode() -> bool:
    """Whether output must be the same on every run: asked for, or the notebook is being compared by a test runner."""
    return mode.static_mode() or ".ipynb::" in os.environ.get("PYTEST_CURRENT_TEST", "")


def summary(completion: Completion, times: bool = False) -> str:
    """The figures in one line: tokens, why it ended, cached part, and times where they are wanted."""
    usage, timings = completion.usage, completion.timings
    reason = completion.finish_reason or "running"
    if completion.error is not None:
        reason = f"failed ({completion.stop_reason or type(completion.error).__name__})"
    parts = [reason] if completion.text and not usage.completion else [_count(usage.completion, "token"), reason]
    if usage.prompt:
        size = _count(usage.prompt, "prompt token")
        source = SOURCES.get(completion.reuse, "")
        parts.append(f"{usage.cached:,} of {size} cached{source}" if completion.cache_known else size)
    if (
        completion.params.logprobs is not None
        and completion.finish_reason
        and completion.text
        and not completion.tokens
    ):
        parts.append("no log probabilities: the server tells no token ids")
    if times and timings is not None:
        parts += [f"first token {duration(timings.ttft)}"] if timings.ttft is not None else []
        parts += [f"{1 / timings.tpot:.1f} tok/s"] if timings.tpot else []
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Milliseconds below 10 s, seconds above."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.0f} ms"


def footer(completion: Completion) -> str:
    """The line under a text; times are left out where output must not change between runs."""
    return summary(completion, times=not static_mode())


def live_bundle(texts: Sequence[str], note: str = "") -> Bundle:
    """A text that is still growing."""
    plain = "\n\n".join(texts)
    body = "".join(f'<pre style="{_TEXT}">{escape_text(text)}</pre>' for text in texts)
    return {"text/plain": f"{plain}\n{note}".rstrip("\n"), "text/html": _frame(body, note)}


def bundle(completions: Sequence[Completion]) -> Bundle:
    """The final, static form: readable without a kernel, in a saved notebook and in any converter."""
    form = completions[0].format
    plain = "\n\n".join(f"{title(one, completions)}{one.text}\n{footer(one)}" for one in completions)
    if form == "markdown":
        text = "\n\n".join(f"{title(one, completions)}{one.text}" for one in completions)
        return {"text/plain": plain, "text/markdown": text}
    if form == "json":
        return {"text/plain": plain, **_json(completions)}
    return {"text/plain": plain, "text/html": _view(completions)}


def title(one: Completion, completions: Sequence[Completion]) -> str:
    """The heading of one of several choices."""
    return heading(one.index, len(completions))


def heading(index: int, count: int) -> str:
    """The line over the text of one of `count` choices."""
    return f"[{index + 1} of {count}]\n" if count > 1 else ""


def _view(completions: Sequence[Completion]) -> str:
    """The view in its static form: one in full, or the choices of one request as rows."""
    rows = [one.row() for one in completions]
    if len(rows) == 1:
        return generation_html(rows[0], completions[0].text)
    title = "Completions" if static_mode() else completions[0].request_id
    return stacked_html(title, rows, [one.text for one in completions], "choice")


def table(completions: Sequence[Completion]) -> Bundle:
    """Prompt, text and figures of each completion of a batch."""
    plain = "\n\n".join(
        f"[{number} of {len(completions)}] {_head(one.prompt)!r}\n{one.text}\n{footer(one)}"
        for number, one in enumerate(completions, 1)
    )
    rows = [one.row() for one in completions]
    return {"text/plain": plain, "text/html": stacked_html("Batch", rows, [one.text for one in completions])}


def _head(prompt: str | list[int], limit: int = 80) -> str:
    text = prompt if isinstance(prompt, str) else f"{len(prompt)} token ids"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _frame(body: str, note: str) -> str:
    below = f'<div style="{_NOTE}">{escape_text(note)}</div>' if note else ""
    return f'<div class="yaie" style="{_COLOURS};font-size:14px;line-height:1.5">{body}{below}</div>'


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are no JSON, and a notebook that holds them cannot be read


def _json(completions: Sequence[Completion]) -> Bundle:
    """The parsed text for the front end's JSON view; nothing when it does not parse."""
    try:
        values = [json.loads(one.text, parse_constant=_no_number) for one in completions]
    except (ValueError, RecursionError):  # a model may write brackets without end
        return {}
    value = values[0] if len(values) == 1 else values
    return {"application/json": value} if isinstance(value, dict | list) else {}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
