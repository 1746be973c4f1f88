"""What a request gives back: plain frozen data, no tensors, no engine reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import YaieError

FinishReason = Literal["stop", "length", "cancelled", "error"]
Reuse = Literal["none", "radix", "host", "store", "state"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token under the raw model (log-softmax of the logits, before any penalty).

    `rank` is 1 for the most likely token; `decoded_token` is the token's own text.
    """

    logprob: float
    rank: int
    decoded_token: str


Logprobs = dict[int, Logprob]


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of a request; `token_ids` include the token that ended it."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    cumulative_logprob: float | None = None
    logprobs: tuple[Logprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times in seconds; `reuse` says where cached tokens came from; counts cover all choices."""

    queue_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    total_s: float = 0.0
    reuse: Reuse = "none"
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What a server says that tells no token ids: tokens of the prompt, of all choices together, and from its cache.
    None is what it does not say."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """Result of one prompt. `prompt_logprobs` has one entry per prompt token, the first is None. `counts` stand in
    where a server tells no token ids."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    finished: bool
    num_cached_tokens: int
    prompt_logprobs: tuple[Logprobs | None, ...] | None = None
    error: YaieError | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    counts: TokenCounts | None = None

    @property
    def num_prompt_tokens(self) -> int | None:
        """None where it is not known."""
        if self.prompt_token_ids:
            return len(self.prompt_token_ids)
        return None if self.counts is None else self.counts.prompt

    def num_output_tokens(self, index: int) -> int | None:
        """Tokens of a choice; None where they are not known."""
        choice = self.outputs[index]
        if choice.token_ids or not choice.text:
            return len(choice.token_ids)
        return self.counts.output if self.counts is not None and len(self.outputs) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; the error becomes `{type, message}`."""
        error = None if self.error is None else {"type": type(self.error).__name__, "message": str(self.error)}
        return {
            "request_id": self.request_id,
            "prompt": self.prompt,
            "prompt_token_ids": list(self.prompt_token_ids),
            "prompt_logprobs": _logprobs(self.prompt_logprobs),
            "outputs": [
                {
                    "index": choice.index,
                    "text": choice.text,
                    "token_ids": list(choice.token_ids),
                    "cumulative_logprob": choice.cumulative_logprob,
                    "logprobs": _logprobs(choice.logprobs),
                    "finish_reason": choice.finish_reason,
                    "stop_reason": choice.stop_reason,
                }
                for choice in self.outputs
            ],
            "finished": self.finished,
            "num_cached_tokens": self.num_cached_tokens,
            "error": error,
            "metrics": {name: getattr(self.metrics, name) for name in RequestMetrics.__slots__},
        }


def _logprobs(rows: tuple[Logprobs | None, ...] | None) -> list[Any] | None:
    return None if rows is None else [None if row is None else _row(row) for row in rows]


def _row(row: Logprobs) -> dict[str, Any]:
    return {
        str(token_id): {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.decoded_token}
        for token_id, item in row.items()
    }
