"""States of generations as the live view is told them, and the outputs that their static forms are made of."""

from __future__ import annotations

from typing import Any

from tests.live.runs import ANSWER, LUMEN, QUESTIONS
from yaie_engine.errors import RequestTimeout
from yaie_engine.increment import RequestFacts
from yaie_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from yaie_engine.progress import Progress
from yaie_widgets.live.generation_prompt import split_prompt
from yaie_widgets.live.generation_row import Row, final_row, live_row, tally

CACHED = len(LUMEN)


def ids_of(text: str) -> list[int]:
    """One token for each byte."""
    return list(text.encode(errors="replace"))


def decode(ids: Any) -> str:
    return bytes(ids).decode(errors="replace")


def progress(state: str, prompt: str, *, output: int = 0, ahead: int = 0, computed: int | None = None) -> Progress:
    """A live request in that state; `CACHED` tokens came from the cache once it was admitted."""
    ids = ids_of(prompt)
    known = state != "waiting"
    facts = RequestFacts(
        label="req-7",
        prompt=prompt,
        head_ids=(),
        state=state,
        finish_reason=None,
        stop_reason=None,
        error=None,
        num_prompt_tokens=len(ids),
        num_cached_tokens=min(CACHED, len(ids)) if known else None,
        num_output_tokens=output,
        submitted_at=0.0,
        queue_s=0.004 if known else None,
        ttft_s=0.056 if output else None,
        total_s=None,
    )
    done = (len(ids) + output if computed is None else computed) if known else 0
    step = 51 if known else None
    return Progress(facts, ids, ahead, done, len(ids), 256, 0, 0.519, 0.0145 if output > 1 else None, 18, step)


def row_of(label: str, now: Progress, stopping: bool = False) -> Row:
    prompt = now.facts.prompt or ""
    return live_row(
        label, now, split_prompt(prompt, now.prompt_token_ids, now.facts.num_cached_tokens, decode), stopping
    )


def whole(*rows: Row, texts: tuple[str, ...] = (), title: str = "", total: int = 0) -> dict[str, Any]:
    """The whole state of a view."""
    texts = texts or ("",) * len(rows)
    return {
        "kind": "whole",
        "title": title,
        "stacked": bool(title),
        "total": max(total, len(rows)),
        "tally": tally(rows, max(total, len(rows)), "request") if title else "",
        "rows": [{**row.to_dict(), "text": text} for row, text in zip(rows, texts, strict=True)],
    }


def output(prompt: str, text: str, reason: Any = "stop", stop: Any = None) -> RequestOutput:
    tokens = tuple(ids_of(text))
    metrics = RequestMetrics(
        queue_s=0.004, ttft_s=0.056 if tokens else None, tpot_s=0.01389, total_s=0.556, first_step=18, last_step=55
    )
    choice = CompletionOutput(0, text, tokens, finish_reason=reason, stop_reason=stop)
    error = RequestTimeout("request req-7 ran into its timeout") if reason == "error" else None
    cached = min(CACHED, len(ids_of(prompt)))
    return RequestOutput("req-7", prompt, tuple(ids_of(prompt)), (choice,), True, cached, None, error, metrics)


def ended(label: str, prompt: str, text: str, reason: Any = "stop", stop: Any = None) -> Row:
    made = output(prompt, text, reason, stop)
    return final_row(
        label, made, 0, split_prompt(prompt, made.prompt_token_ids, made.num_cached_tokens, decode), "tiny"
    )


def one(state: str = "decode", text: str = ANSWER[:120], prompt: str = QUESTIONS[6]) -> dict[str, Any]:
    """One request: waiting, prefill, decode, or ended for a reason."""
    if state in ("waiting", "prefill", "decode", "preempted", "swapped"):
        shown = text if state == "decode" else ""
        now = progress(
            state, prompt, output=len(ids_of(shown)), ahead=3, computed=CACHED + 40 if state == "prefill" else None
        )
        return whole(row_of("req-7", now), texts=(shown,))
    return whole(ended("req-7", prompt, text, state), texts=(text,))


def batch(number: int = 4) -> dict[str, Any]:
    """Many requests in all states."""
    rows, texts = [], []
    for place in range(number):
        prompt, label = QUESTIONS[place % 12], f"req-{place}"
        text = ANSWER[place % 40 :] * (1 + place % 3)
        kind = ("stop", "decode", "prefill", "waiting", "length", "error", "cancelled", "decode")[place % 8]
        if kind in ("decode", "prefill", "waiting"):
            text = text if kind == "decode" else ""
            now = progress(
                kind,
                prompt,
                output=len(ids_of(text)),
                ahead=place,
                computed=len(prompt) // 2 if kind == "prefill" else None,
            )
            rows.append(row_of(label, now))
        else:
            text = "" if kind == "error" else text
            rows.append(ended(label, prompt, text, kind))
        texts.append(text)
    return whole(*rows, texts=tuple(texts), title="Batch", total=number + 2)
