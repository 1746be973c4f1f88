"""What our own clients ask for beside the OpenAI form: the engine's ids and figures, and log-probabilities by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from .logprobs import prompt_logprobs

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput, RequestOutput
    from yaie_engine.outputs import RequestMetrics


class Metrics(TypedDict):
    """The engine's figures of one prompt's request; times in seconds."""

    queue_s: float
    ttft_s: float | None
    tpot_s: float | None
    total_s: float
    reuse: str
    num_computed_tokens: int
    num_preemptions: int
    first_step: int | None
    last_step: int | None


def metrics_of(outputs: Sequence[RequestOutput]) -> list[Metrics]:
    """The figures of each prompt's request."""
    return [_metrics(output.metrics) for output in outputs]


def _metrics(found: RequestMetrics) -> Metrics:
    return {
        "queue_s": found.queue_s,
        "ttft_s": found.ttft_s,
        "tpot_s": found.tpot_s,
        "total_s": found.total_s,
        "reuse": found.reuse,
        "num_computed_tokens": found.num_computed_tokens,
        "num_preemptions": found.num_preemptions,
        "first_step": found.first_step,
        "last_step": found.last_step,
    }


def token_logprobs(choice: CompletionOutput, start: int = 0) -> list[dict[str, Any] | None] | None:
    """The log-probabilities of a choice from a token on, by token id and with their ranks."""
    return None if choice.logprobs is None else prompt_logprobs(choice.logprobs[start:])
