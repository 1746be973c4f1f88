"""Log-probabilities of the raw model: log-softmax of the logits before any penalty, bias or temperature."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .ranking import ordered_topk, rank_of

RankedLogprobs = dict[int, tuple[float, int]]
"""{token id: (log-probability, rank)}, rank 1 for the most likely token; equal ones are ranked by id."""


def ranked_logprobs(logprobs: Tensor, chosen: Tensor, nums: Sequence[int]) -> list[RankedLogprobs]:
    """For each row of `logprobs` [rows, vocab]: the token `chosen` [rows] first, then the `nums[row]` best.

    A chosen token that is among the best appears once, so a row has num or num + 1 entries.
    """
    vocab = logprobs.shape[1]
    ranks = rank_of(logprobs, chosen).tolist()
    values = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
    result = [{token: (value, rank)} for token, value, rank in zip(chosen.tolist(), values, ranks, strict=True)]
    most = min(max(nums, default=0), vocab)
    if most:
        best, ids = ordered_topk(logprobs, most)
        for row, num, row_values, row_ids in zip(result, nums, best.tolist(), ids.tolist(), strict=True):
            ranked = zip(row_ids[:num], row_values[:num], range(1, num + 1), strict=False)
            row.update({token: (value, rank) for token, value, rank in ranked})
    return result
