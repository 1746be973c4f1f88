"""What the sampler remembers of one choice between steps: its parameters, random stream and token counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .params import SamplingParams
from .penalties import Floats, Ids, Penalties, TokenCounts


class SamplingRow:
    """One choice of one request. Made by `Sampler.new_row`; the engine calls `push` for each accepted token.

    Preemption does not touch it: the position in the random stream is the number of tokens pushed.
    """

    __slots__ = ("bias", "counts", "end_ids", "index", "num_output", "params", "penalties", "seed")

    def __init__(
        self,
        params: SamplingParams,
        *,
        seed: int,
        index: int,
        prompt_token_ids: Sequence[int],
        end_ids: Ids,
        limit: int,
    ) -> None:
        """`end_ids`: tokens forbidden while fewer than min_tokens were generated; `limit`: number of valid ids."""
        self.params = params
        self.seed = seed
        self.index = index
        self.num_output = 0
        self.end_ids = end_ids
        self.bias = _bias(params)
        self.penalties = Penalties(params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        self.counts: TokenCounts | None = None
        if self.penalties != Penalties(1.0, 0.0, 0.0):
            # Only the repetition penalty looks at the prompt.
            seen = prompt_token_ids if params.repetition_penalty != 1 else ()
            self.counts = TokenCounts(seen, limit)

    def push(self, token_id: int) -> None:
        """Count an accepted token: O(1)."""
        self.num_output += 1
        if self.counts is not None:
            self.counts.push(token_id)

    @property
    def ends_forbidden(self) -> bool:
        """Whether min_tokens still forbids the tokens that would end the text."""
        return self.num_output < self.params.min_tokens and len(self.end_ids) > 0

    @property
    def adjusts(self) -> bool:
        """Whether this row changes its logits at all in the next step."""
        return self.counts is not None or self.bias is not None or self.ends_forbidden


def _bias(params: SamplingParams) -> tuple[Ids, Floats] | None:
    if not params.logit_bias:
        return None
    ids = np.fromiter(params.logit_bias, dtype=np.int64)
    return ids, np.fromiter(params.logit_bias.values(), dtype=np.float32)
