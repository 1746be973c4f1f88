"""From sampled tokens to text, log-probabilities and the reason to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .fault_points import fault_point
from .outputs import Logprob, Logprobs
from .request import Choice, Request

if TYPE_CHECKING:
    from .sampler import SampledToken
    from .tokenizer import Tokenizer

RawLogprobs = dict[int, tuple[float, int]]


class Delivery:
    """Takes one token of one choice: passes its text on and decides whether the choice ends. Engine thread only."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: tuple[int, ...]) -> None:
        self.tokenizer = tokenizer
        self.eos_token_ids = frozenset(eos_token_ids)

    def accept(self, request: Request, choice: Choice, sampled: SampledToken) -> bool:
        """Deliver a token that is already in the sequence; True when the choice ended with it."""
        now = time.monotonic()
        request.first_token = request.first_token or now
        request.last_token = now
        choice.delivered += 1
        if sampled.logprobs is not None:
            choice.cumulative_logprob += sampled.logprobs[sampled.token_id][0]
            choice.logprobs.append(self.logprobs(sampled.logprobs))
        ended = self._ends(request, choice, sampled.token_id)
        fault_point("detokenise", request, choice)
        text = choice.detokenizer.push(sampled.token_id, is_end=ended)
        if not ended and choice.detokenizer.stop_reason is not None:
            choice.finish_reason, choice.stop_reason, ended = "stop", choice.detokenizer.stop_reason, True
        if not ended and choice.seq.num_output_tokens >= choice.seq.max_tokens:
            choice.finish_reason, ended = "length", True
        if ended:
            text += choice.detokenizer.flush()
        self._tell(request, choice, text)
        return ended

    def decides(self, request: Request, choice: Choice, sampled: SampledToken) -> bool:
        """Whether a token may end its choice, so that it has to be delivered before anything else is planned."""
        params, token_id = request.params, sampled.token_id
        return (
            sampled.error is not None
            or bool(params.stop)
            or token_id in self.eos_token_ids
            or token_id in params.stop_token_ids
            or choice.seq.num_output_tokens >= choice.seq.max_tokens
        )

    def _ends(self, request: Request, choice: Choice, token_id: int) -> bool:
        """An end-of-text or stop id ends the choice once `min_tokens` came before it."""
        params = request.params
        if choice.seq.num_output_tokens <= params.min_tokens:
            return False
        if token_id in params.stop_token_ids:
            choice.finish_reason, choice.stop_reason = "stop", token_id
        elif token_id in self.eos_token_ids and not params.ignore_eos:
            choice.finish_reason = "stop"
        return choice.finish_reason is not None

    def logprobs(self, raw: RawLogprobs) -> Logprobs:
        """Add each token's own text."""
        fault_point("logprobs", raw)
        text = self.tokenizer.token_text
        return {token_id: Logprob(value, rank, text(token_id)) for token_id, (value, rank) in raw.items()}

    def flush(self, request: Request, choice: Choice) -> None:
        """Pass on the text held back, when a choice ends from outside."""
        self._tell(request, choice, choice.detokenizer.flush())

    def _tell(self, request: Request, choice: Choice, text: str) -> None:
        if text:
            fault_point("event", request, choice, text)
            request.channel.put(choice.seq.index, text)
