"""Numbers from Python to a device without making the host wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def upload(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` (nested lists for more dimensions) as a tensor on `device`.

    For a GPU they go through pinned memory, so that the copy is queued and nobody waits for it. The pinned buffer is a
    new one each time: torch's host allocator gives it out again only when the copy that reads it has run.
    """
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
