"""How far a kernel's result is from the reference's, and where it first goes wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .result import Difference


def compare(tensor: str, got: Tensor, expected: Tensor, tolerance: float) -> Difference:
    """Hold `got` beside `expected`; `tolerance` 0 asks for equality."""
    ours, right = got.detach().cpu().double(), expected.detach().cpu().double()
    gap = (ours - right).abs()
    same = (ours == right) | (ours.isnan() & right.isnan())
    gap = torch.where(same, 0.0, gap.nan_to_num(nan=math.inf))
    size = right.nan_to_num(0, 0, 0).square().mean().sqrt() if right.numel() else torch.zeros(())
    scale = right.abs().nan_to_num(nan=0.0) + size
    relative = torch.where(gap > 0, gap / scale.clamp_min(1e-30), 0.0)
    wrong = relative > tolerance
    found = {}
    if wrong.any():
        flat = int(wrong.flatten().nonzero()[0])
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), right.shape))
        found = {"index": index, "got": float(ours[index]), "expected": float(right[index])}
    return Difference(
        tensor,
        max_error=float(gap.max()) if gap.numel() else 0.0,
        relative_error=float(relative.max()) if gap.numel() else 0.0,
        tolerance=tolerance,
        wrong=int(wrong.sum()),
        elements=right.numel(),
        **found,  # type: ignore[arg-type]
    )
