"""Log-probabilities of the raw model: log-softmax of the logits before any penalty, bias or temperature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .ranking import rank_of, waitless_topk

RankedLogprobs = dict[int, tuple[float, int]]
"""{token id: (log-probability, rank)}, rank 1 for the most likely token; equal ones are ranked by id."""


_ROWS = 64
"""Rows that are ranked at a time, to bound memory."""


def ranked_logprobs(logprobs: Tensor, chosen: Tensor, nums: Sequence[int]) -> list[RankedLogprobs]:
    """For each row of `logprobs` [rows, vocab]: the token `chosen` [rows] first, then the `nums[row]` best.

    A chosen token that is among the best appears once, so a row has num or num + 1 entries.
    """
    return read_table(rank_table(logprobs, chosen, max(nums, default=0)).tolist(), nums)


def rank_table(logprobs: Tensor, chosen: Tensor, most: int) -> Tensor:
    """All that `read_table` needs, made without waiting: float64 [rows, 3 + 2 * most], which holds ids exactly.

    The chosen token, its log-probability and rank; the `most` best log-probabilities; their ids.
    """
    parts = [
        _table(logprobs[start : start + _ROWS], chosen[start : start + _ROWS], min(most, logprobs.shape[1]))
        for start in range(0, max(len(chosen), 1), _ROWS)
    ]
    return torch.cat(parts)


def read_table(table: Sequence[Sequence[float]], nums: Sequence[int]) -> list[RankedLogprobs]:
    """The rows of a `rank_table` on the host, with the `nums[row]` best of each."""
    result: list[RankedLogprobs] = []
    for row, num in zip(table, nums, strict=True):
        most = (len(row) - 3) // 2
        entry = {int(row[0]): (row[1], int(row[2]))}
        best = zip(row[3 + most : 3 + most + num], row[3 : 3 + min(num, most)], range(1, num + 1), strict=False)
        entry.update({int(token): (value, rank) for token, value, rank in best})
        result.append(entry)
    return result


def _table(logprobs: Tensor, chosen: Tensor, most: int) -> Tensor:
    value = logprobs.gather(1, chosen[:, None])
    parts = [chosen[:, None], value, rank_of(logprobs, chosen)[:, None]]
    parts += waitless_topk(logprobs, most) if most else ()
    return torch.cat([part.double() for part in parts], dim=1)
