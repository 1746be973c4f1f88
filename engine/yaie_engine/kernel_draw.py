"""Draws the tokens of a whole step with one kernel; nothing is read back from the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .backends.kernels import Op
from .sampling_row import SamplingRow
from .upload import upload

_SIGNED = 2**63


class KernelDraw:
    """`top_k_top_p_sample` over rows of sampling parameters. Same tokens as `distribution.draw`, by its definition."""

    def __init__(self, sample: Op) -> None:
        self._sample = sample

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
