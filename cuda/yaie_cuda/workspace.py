"""Buffers that launches reuse: an op allocates nothing else."""

from __future__ import annotations

import math
from threading import Lock

import torch
from torch import Tensor

_Asked = tuple[str, tuple[int, ...], torch.dtype, torch.device]
MOST_VIEWS = 1024


class Workspace:
    """Named buffers that grow to the largest shape asked for.

    Thread: any. One op of one stream at a time may use a name.

    A buffer that was handed out while a CUDA graph was captured is kept for good, because the graph holds its address.
    """

    def __init__(self) -> None:
        self._flat: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}
        self._captured: dict[int, Tensor] = {}
        self._views: dict[_Asked, Tensor] = {}
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers that are handed out now."""
        with self._lock:
            return sum(flat.nbytes for flat in self._flat.values())

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of `shape` with undefined content. Raises RuntimeError when it would grow during a capture."""
        asked = (name, shape, dtype, device)
        view = self._views.get(asked)
        if view is None or (view.is_cuda and torch.cuda.is_current_stream_capturing()):
            return self._cut(asked)
        return view

    def _cut(self, asked: _Asked) -> Tensor:
        """The beginning of the buffer, which grows as needed."""
        name, shape, dtype, device = asked
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        needed = math.prod(shape)
        with self._lock:
            flat = self._flat.get((name, dtype, device))
            if flat is None or flat.numel() < needed:
                if capturing:
                    raise RuntimeError(
                        f"workspace {name!r} would grow to {needed} elements while a CUDA graph is captured: "
                        "run the op once with the same shapes before"
                    )
                flat = torch.empty(needed, dtype=dtype, device=device)
                self._flat[name, dtype, device] = flat
                self._views.clear()
            if capturing:
                self._captured[flat.data_ptr()] = flat
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            view = self._views[asked] = flat[:needed].view(shape)
        return view
