"""A request as the engine keeps it: its choices, its clock and its way back to the caller."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .channel import Channel
from .detokenizer import Detokenizer
from .errors import YaieError
from .outputs import CompletionOutput, FinishReason, Logprobs, RequestMetrics, RequestOutput, Reuse
from .params import SamplingParams
from .record import RequestRecord
from .sequence import Sequence

if TYPE_CHECKING:
    from .sampler import SamplingRow


@dataclass(eq=False, slots=True)
class Choice:
    """One of a request's `n` completions. Its sequence may be ahead of what is `delivered` by one token."""

    seq: Sequence
    row: SamplingRow
    detokenizer: Detokenizer
    logprobs: list[Logprobs] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    delivered: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def interrupt(self, failed: bool, stop_reason: str | None) -> None:
        """End from outside: cancelled or failed."""
        self.finish_reason, self.stop_reason = "error" if failed else "cancelled", stop_reason

    def output(self, with_logprobs: bool) -> CompletionOutput:
        """The choice so far as frozen data."""
        return CompletionOutput(
            index=self.seq.index,
            text=self.detokenizer.text,
            token_ids=tuple(self.seq.output_token_ids),
            cumulative_logprob=self.cumulative_logprob if with_logprobs else None,
            logprobs=tuple(self.logprobs) if with_logprobs else None,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )


@dataclass(eq=False, slots=True, weakref_slot=True)
class Request:
    """Everything about one prompt; the engine thread's once it is queued. Times are `time.monotonic()`."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    params: SamplingParams
    channel: Channel
    choices: list[Choice] = field(default_factory=list)
    prompt_logprobs: list[Logprobs | None] | None = None
    error: YaieError | None = None
    deadline: float | None = None
    submitted: float = field(default_factory=time.monotonic)
    submitted_at: float = field(default_factory=time.time)
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    num_prefill_steps: int = 0
    num_decode_steps: int = 0
    blocks_owned: dict[int, None] = field(default_factory=dict)

    @property
    def live_choices(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.finish_reason is None]

    @property
    def num_cached_tokens(self) -> int:
        return self.choices[0].seq.num_cached_tokens or 0

    def start_clock(self, timeout: float | None) -> None:
        """It is queued now."""
        self.submitted, self.submitted_at = time.monotonic(), time.time()
        self.deadline = None if timeout is None else self.submitted + timeout

    def fail(self, error: YaieError) -> None:
        """Remember why the request failed; the first reason stays."""
        self.error = self.error or error

    def output(self) -> RequestOutput:
        """The request so far as frozen data."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=tuple(self.prompt_token_ids),
            outputs=tuple(choice.output(self.params.logprobs is not None) for choice in self.choices),
            finished=not self.live_choices,
            num_cached_tokens=self.num_cached_tokens,
            prompt_logprobs=None if self.prompt_logprobs is None else tuple(self.prompt_logprobs),
            error=self.error,
            metrics=self.metrics(),
        )

    def bare_output(self, error: YaieError) -> RequestOutput:
        """What can be said for certain, when making the whole output failed."""
        outputs = tuple(CompletionOutput(choice.seq.index, "", (), finish_reason="error") for choice in self.choices)
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=tuple(self.prompt_token_ids),
            outputs=outputs,
            finished=True,
            num_cached_tokens=0,
            error=self.error or error,
        )

    def metrics(self) -> RequestMetrics:
        """Times and counts so far."""
        now = time.monotonic()
        most = max(choice.seq.num_output_tokens for choice in self.choices)
        tpot = None
        if self.first_token is not None and self.last_token is not None and most > 1:
            tpot = (self.last_token - self.first_token) / (most - 1)
        return RequestMetrics(
            queue_s=(self.scheduled or now) - self.submitted,
            ttft_s=None if self.first_token is None else self.first_token - self.submitted,
            tpot_s=tpot,
            total_s=now - self.submitted,
            reuse=self._reuse(),
            num_computed_tokens=sum(choice.seq.num_computed_total for choice in self.choices),
            num_preemptions=sum(choice.seq.num_preemptions for choice in self.choices),
            first_step=self.first_step,
            last_step=self.last_step,
        )

    def _reuse(self) -> Reuse:
        """What gave the largest part of the tokens that did not have to be computed."""
        if not self.num_cached_tokens:
            return "none"
        first = self.choices[0].seq
        shares: dict[Reuse, int] = {
            "host": first.restored_from_host,
            "store": min(first.restored, self.num_cached_tokens),
            "state": min(first.restored_state, self.num_cached_tokens),
        }
        shares["radix"] = self.num_cached_tokens - sum(shares.values())
        return max(shares, key=lambda name: shares[name])

    def record(self) -> RequestRecord:
        """What `explain` and `history` need once the request has ended."""
        metrics = self.metrics()
        admission = next(iter(self.choices[0].seq.admissions), None)
        first_token_s = metrics.ttft_s if metrics.ttft_s is not None else metrics.total_s
        return RequestRecord(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=tuple(self.prompt_token_ids),
            output_token_ids=tuple(tuple(choice.seq.output_token_ids) for choice in self.choices),
            texts=tuple(choice.detokenizer.text for choice in self.choices),
            finish_reasons=tuple(choice.finish_reason or "error" for choice in self.choices),
            stop_reasons=tuple(choice.stop_reason for choice in self.choices),
            error=None if self.error is None else str(self.error),
            num_cached_tokens=self.num_cached_tokens,
            matched=admission.matched if admission else (),
            blocks_shared=admission.shared if admission else (),
            blocks_owned=tuple(self.blocks_owned),
            copied=admission.copied if admission else None,
            first_step=self.first_step,
            last_step=self.last_step,
            num_prefill_steps=self.num_prefill_steps,
            num_decode_steps=self.num_decode_steps,
            num_preemptions=metrics.num_preemptions,
            queue_s=metrics.queue_s,
            prefill_s=first_token_s - metrics.queue_s,
            decode_s=max(0.0, metrics.total_s - first_token_s),
            total_s=metrics.total_s,
            submitted_at=self.submitted_at,
            reuse=metrics.reuse,
        )
