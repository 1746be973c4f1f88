"""How far one choice of a live request is, read from any thread while the engine works on it. Imports no torch.

Nothing here takes a lock or asks the engine thread: single attributes are read as they stand, so that figures of one
reading may be a step apart. What counts in the end is in the request's output.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .increment import RequestFacts, choice_now

if TYPE_CHECKING:
    from .request import Request
    from .scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Progress:
    """`ahead`: sequences that wait before this one. `num_computed_tokens` of `prefill_end` are done in a prefill."""

    facts: RequestFacts
    prompt_token_ids: Sequence[int]
    ahead: int
    num_computed_tokens: int
    prefill_end: int
    max_tokens: int
    num_preemptions: int
    elapsed_s: float
    tpot_s: float | None
    first_step: int | None
    last_step: int | None


class Watch:
    """Reads the progress of one request. It keeps neither the request nor the engine alive."""

    def __init__(self, request: Request, scheduler: Scheduler) -> None:
        self._request = weakref.ref(request)
        self._scheduler = weakref.ref(scheduler)

    def __call__(self, index: int = 0) -> Progress | None:
        """The progress of a choice; None once the engine has forgotten the request."""
        request, scheduler = self._request(), self._scheduler()
        if request is None or scheduler is None:
            return None
        seq = request.choices[index].seq
        decoded = request.choices[index].delivered - 1
        first, last = request.first_token, request.last_token
        return Progress(
            facts=choice_now(request, request.choices[index]),
            prompt_token_ids=request.prompt_token_ids,
            ahead=_ahead(scheduler, request, index) if seq.state == "waiting" else 0,
            num_computed_tokens=seq.computed,
            prefill_end=max(seq.prefill_end, seq.num_prompt_tokens),
            max_tokens=seq.max_tokens,
            num_preemptions=seq.num_preemptions,
            elapsed_s=time.monotonic() - request.submitted,
            tpot_s=None if first is None or last is None or decoded < 1 else (last - first) / decoded,
            first_step=request.first_step,
            last_step=request.last_step,
        )


def _ahead(scheduler: Scheduler, request: Request, index: int) -> int:
    waiting = list(scheduler.waiting)
    try:
        return waiting.index(request.choices[index].seq)
    except ValueError:  # not drained from the inbox yet, or admitted in between
        return len(waiting)
