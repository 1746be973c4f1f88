"""Buffers that launches reuse: an op allocates nothing else."""

from __future__ import annotations

import math
from threading import Lock

import torch
from torch import Tensor


class Workspace:
    """Named buffers that grow to the largest shape asked for. Thread: any; one stream at a time may use a name.

    A buffer that was handed out while a CUDA graph was captured is kept for good, because the graph holds its address.
    """

    def __init__(self) -> None:
        self._flat: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}
        self._captured: dict[int, Tensor] = {}
        self._lock = Lock()

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of `shape` with undefined content. Raises RuntimeError when it would grow during a capture."""
        needed = math.prod(shape)
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        with self._lock:
            flat = self._flat.get((name, dtype, device))
            if flat is None or flat.numel() < needed:
                if capturing:
                    raise RuntimeError(
                        f"workspace {name!r} would grow to {needed} elements while a CUDA graph is captured: "
                        "run the op once with the largest shape before"
                    )
                flat = torch.empty(needed, dtype=dtype, device=device)
                self._flat[name, dtype, device] = flat
            if capturing:
                self._captured[flat.data_ptr()] = flat
        return flat[:needed].view(shape)
