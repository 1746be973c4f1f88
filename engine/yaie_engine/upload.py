"""Numbers from Python to a device without making the host wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def stage(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` (nested lists for more dimensions) on the host, ready to be copied to `device`.

    For a GPU that is pinned memory, so that the copy is queued and nobody waits for it. The buffer is a new one each
    time: torch's host allocator gives it out again only when the copy that reads it has run.
    """
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")


def upload(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` as a tensor on `device`; the copy is queued."""
    return stage(values, dtype, device).to(device, non_blocking=True)
