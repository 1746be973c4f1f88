"""Penalises the logits of a whole step and draws its tokens by kernels; nothing is read back from the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .backends.kernels import Op
from .penalties import Penalties, TokenCounts
from .sampling_row import SamplingRow
from .upload import upload

_SIGNED = 2**63


class KernelDraw:
    """`apply_penalties` and `top_k_top_p_sample` over rows of sampling parameters.

    By their definitions they do what `penalties.penalise` does, and draw the tokens of `distribution.draw`.
    """

    def __init__(self, sample: Op, penalise: Op) -> None:
        self._sample, self._penalise = sample, penalise

    def penalise(self, logits: Tensor, rows: Sequence[tuple[int, TokenCounts, Penalties]]) -> None:
        """As `penalties.penalise`, with rows in ascending order: `logits` [rows, n] float32 are changed in place."""
        device, count = logits.device, logits.shape[0]
        lengths, strengths = np.zeros(count + 1, dtype=np.int64), np.zeros((3, count), dtype=np.float32)
        for row, counts, one in rows:
            lengths[row + 1] = len(counts.ids)
            strengths[:, row] = one.repetition, one.presence, one.frequency
        self._penalise(
            logits,
            upload(np.concatenate([counts.ids for _, counts, _ in rows]), torch.int64, device),
            upload(np.concatenate([counts.counts for _, counts, _ in rows]), torch.float32, device),
            upload(lengths.cumsum(), torch.int32, device),
            *upload(strengths, torch.float32, device),
        )

    def __call__(self, scores: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
        """Token ids int64 [rows] from `scores` [rows, n], greedy rows too; -1 where no token can be drawn."""
        device, params = scores.device, [row.params for row in rows]
        out = torch.empty(len(rows), dtype=torch.int64, device=device)
        self._sample(
            scores,
            upload([0.0 if one.greedy else one.temperature for one in params], torch.float32, device),
            upload([max(one.top_k, 0) for one in params], torch.int32, device),
            upload([one.top_p for one in params], torch.float32, device),
            upload([one.min_p for one in params], torch.float32, device),
            upload([_signed(row.seed) for row in rows], torch.int64, device),
            upload([_signed(row.index | row.num_output << 32) for row in rows], torch.int64, device),
            out,
        )
        return out


def _signed(value: int) -> int:
    """The same 64 bits as a signed number."""
    return (value + _SIGNED) % (2 * _SIGNED) - _SIGNED
