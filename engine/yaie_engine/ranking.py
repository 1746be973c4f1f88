"""The best entries of each row in one fixed order, so that equal logits can never make two runs differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from yaie_cuda.checks import UnservedError

BestOf = Callable[[Tensor], tuple[Tensor, Tensor]]
_LAST_ID = 2**32 - 1
_ROWS = 8


def best_of(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Value and id, both [rows], of the best of `scores` [rows, n] in any dtype; of equal ones the lowest id.

    NaN counts as better than any number.
    """
    if scores.device.type != "cpu":
        ids = scores.argmax(-1)
    else:  # NumPy compares as many numbers as a register holds, torch one; few rows stay in the cache when widened
        ids = torch.cat([torch.from_numpy(rows.float().numpy().argmax(-1)) for rows in scores.split(_ROWS)])
    return scores.gather(1, ids[:, None])[:, 0], ids


def best_by(kernel: BestOf) -> BestOf:
    """`best_of` by a kernel, and as above what that does not take."""

    def best(scores: Tensor) -> tuple[Tensor, Tensor]:
        try:
            return kernel(scores)
        except UnservedError:
            return best_of(scores)

    return best


def ordered_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and ids, both [rows, k], of the best `k` of `scores` [rows, n]: by value descending, then id ascending.

    `torch.topk` picks any of several equal values at its edge; low-precision logits are often equal there.
    """
    if k >= scores.shape[-1]:
        return _sorted(scores)
    values, ids = torch.topk(scores, k + 1)
    for row in (values[:, k - 1] == values[:, k]).nonzero().flatten().tolist():
        edge = values[row, k - 1]
        above = int((values[row, :k] > edge).sum())
        ids[row, above:k] = (scores[row] == edge).nonzero().flatten()[: k - above]
    ids, _ = torch.sort(ids[:, :k], dim=-1)
    values, order = torch.sort(scores.gather(-1, ids), dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def waitless_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """What `ordered_topk` gives for float32 `scores`, without a look at the device's values in between.

    Value and id make one int64 key, so that no two are equal. On a CPU that takes twice as long or more.
    """
    ids = _LAST_ID - (torch.topk(_keys(scores), k).values & _LAST_ID)
    return scores.gather(-1, ids), ids


def _keys(scores: Tensor) -> Tensor:
    """int64 numbers in the order of value, then of id from the last on."""
    bits = (scores + 0.0).view(torch.int32)  # -0.0 becomes 0.0
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # negative floats grow downwards
    return (order << 32) | (_LAST_ID - torch.arange(scores.shape[-1], device=scores.device))


def _sorted(scores: Tensor) -> tuple[Tensor, Tensor]:
    """All of `scores` in that order. On a CPU NumPy sorts the keys, in half the time that torch takes for the pairs."""
    if scores.device.type != "cpu" or scores.dtype != torch.float32:
        return _pair(torch.sort(scores, dim=-1, descending=True, stable=True))
    keys = torch.from_numpy(np.sort(_keys(scores).numpy(), axis=-1)).flip(-1)
    ids = _LAST_ID - (keys & _LAST_ID)
    return scores.gather(-1, ids), ids


def rank_of(scores: Tensor, ids: Tensor) -> Tensor:
    """Rank (1 is best) of `ids` [rows] among `scores` [rows, n], in the order of `ordered_topk`: int64 [rows]."""
    value = scores.gather(-1, ids[:, None])
    lower_ids = torch.arange(scores.shape[-1], device=scores.device) < ids[:, None]
    ahead = (scores > value) | ((scores == value) & lower_ids)
    return ahead.sum(-1, dtype=torch.int32).long() + 1


def _pair(result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return result[0], result[1]
