"""What one step may hold. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """A threshold of 0 means no limit; without `chunked_prefill` prompts run whole.

    Who shares at least `shared_prefill` tokens with a prompt that is being computed waits for them (0: nobody does).
    """

    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    watermark: int | None = None
    shared_prefill: int = 32

    def share(self, remaining: int, left: int, planned: Iterable[int] = ()) -> int:
        """How many of a sequence's `remaining` tokens a step can take; 0 when its turn is later.

        The step has `left` tokens to go, others take `planned`.
        """
        if remaining == 1:
            return min(1, max(0, left))
        if not self.chunked_prefill:
            return remaining if remaining <= left or all(n <= 1 for n in planned) else 0
        longest = self.long_prefill_token_threshold or remaining
        return max(0, min(remaining, longest, left))
