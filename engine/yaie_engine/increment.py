"""What happened since a step: the increments that live views follow. Imports no torch.

Nothing here waits for the engine thread, so that a view costs it no step and one slow engine holds up no other view.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .record import RequestRecord
from .sequence import Sequence
from .snapshot import EngineState, ModelInfo, RequestState, StepRecord
from .tape import Frame, TapeStep

if TYPE_CHECKING:
    from .request import Choice, Request

HEAD_TOKENS = 64  # enough for the head of a prompt that views show


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One choice of one request in figures; what is not known yet is None.

    `prompt` is None for a request that came as token ids; `head_ids` are its first ones.
    """

    label: str
    prompt: str | None
    head_ids: tuple[int, ...]
    state: str
    finish_reason: str | None
    stop_reason: str | int | None
    error: str | None
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_output_tokens: int
    submitted_at: float
    queue_s: float | None
    ttft_s: float | None
    total_s: float | None


@dataclass(frozen=True, slots=True)
class Increment:
    """The steps after the one asked for, and the requests that have not ended.

    `base` is the frame before the first of them, given when the ring begins after the step asked for.
    """

    state: EngineState
    step: int
    model: ModelInfo
    block_size: int
    num_blocks: int
    base: Frame | None
    records: tuple[StepRecord, ...]
    changes: tuple[TapeStep, ...]
    requests: tuple[RequestFacts, ...]


def facts_now(request: Request) -> list[RequestFacts]:
    """The facts of a live request, read while the engine may work on it."""
    return [choice_now(request, choice) for choice in request.choices]


def choice_now(request: Request, choice: Choice) -> RequestFacts:
    """The facts of one choice of a live request. Its tokens count once they are delivered."""
    seq, delivered = choice.seq, choice.delivered
    first = request.first_token  # read after the count: no token without the time of the first
    return RequestFacts(
        label=seq.label,
        prompt=request.prompt,
        head_ids=tuple(request.prompt_token_ids[:HEAD_TOKENS]),
        state=_state(choice),
        finish_reason=choice.finish_reason,
        stop_reason=choice.stop_reason,
        error=None if request.error is None else str(request.error),
        num_prompt_tokens=seq.num_prompt_tokens,
        num_cached_tokens=seq.num_cached_tokens,
        num_output_tokens=delivered,
        submitted_at=request.submitted_at,
        queue_s=None if request.scheduled is None else request.scheduled - request.submitted,
        ttft_s=None if first is None else first - request.submitted,
        total_s=None if choice.finish_reason is None else time.monotonic() - request.submitted,
    )


def _state(choice: Choice) -> str:
    """How it is, or how it ended, by its reason."""
    if choice.finish_reason is not None:
        return ended_state(choice.finish_reason)
    return live_state(choice.seq)


def live_state(seq: Sequence) -> RequestState:
    """The state of a sequence that waits or runs."""
    if seq.state == "waiting":
        return "swapped" if seq.swapped else "preempted" if seq.admissions else "waiting"
    return "prefill" if seq.computed < seq.prefill_end else "decode"


def ended_state(reason: str) -> str:
    """The state of a request that ended for this reason."""
    return {"error": "failed", "cancelled": "cancelled"}.get(reason, "finished")


def facts_of(record: RequestRecord) -> list[RequestFacts]:
    """The facts of an ended request, for each of its choices."""
    ran = record.first_step is not None
    return [
        RequestFacts(
            label=record.request_id if index == 0 else f"{record.request_id}/{index}",
            prompt=record.prompt,
            head_ids=record.prompt_token_ids[:HEAD_TOKENS],
            state=ended_state(reason),
            finish_reason=reason,
            stop_reason=record.stop_reasons[index],
            error=record.error,
            num_prompt_tokens=len(record.prompt_token_ids),
            num_cached_tokens=record.num_cached_tokens if ran and index == 0 else None,
            num_output_tokens=len(record.output_token_ids[index]),
            submitted_at=record.submitted_at,
            queue_s=record.queue_s if ran else None,
            ttft_s=record.queue_s + record.prefill_s if any(record.output_token_ids) else None,
            total_s=record.total_s,
        )
        for index, reason in enumerate(record.finish_reasons)
    ]
