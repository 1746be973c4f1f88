"""Numbers from Python to a device without making the host wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = Sequence[Any] | NDArray[Any]
NUMPY = {torch.int32: np.int32, torch.int64: np.int64, torch.float32: np.float32}


def stage(values: Values, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values`, int32, int64 or float32 (nested lists for more dimensions), on the host, to be copied to `device`.

    For a GPU that is pinned memory, so that the copy is queued and nobody waits for it. The buffer is a new one each
    time: torch's host allocator gives it out again only when the copy that reads it has run.
    """
    # By way of NumPy, which reads lists several times as fast as torch does: block tables hold 100,000 numbers a step.
    tensor = torch.from_numpy(np.array(values, dtype=NUMPY[dtype]))
    return tensor.pin_memory() if device.type == "cuda" else tensor


def upload(values: Values, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` as a tensor on `device`; the copy is queued."""
    return stage(values, dtype, device).to(device, non_blocking=True)
