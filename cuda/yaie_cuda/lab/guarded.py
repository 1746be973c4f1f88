"""Tensors between margins: reading beside one gives NaN, and writing beside one is found afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MARGIN = 1 << 16  # bytes on each side; keeps the alignment of the allocator
FILL = 0xFF  # as a floating-point number of any width: NaN; as a signed integer: -1


@dataclass(frozen=True, slots=True)
class Guarded:
    """A copy of a tensor on a device, in the middle of a larger buffer; `tensor` is what an op is given."""

    tensor: Tensor
    buffer: Tensor

    @classmethod
    def like(cls, source: Tensor, device: torch.device) -> Guarded:
        """Copy a contiguous tensor; the copy is contiguous, too."""
        size = source.numel() * source.element_size()
        buffer = torch.full((size + 2 * MARGIN,), FILL, dtype=torch.uint8, device=device)
        tensor = buffer[MARGIN : MARGIN + size].view(source.dtype).view(source.shape)
        tensor.copy_(source)
        return cls(tensor, buffer)

    def written_beside(self) -> int | None:
        """How many bytes before the start (negative) or from the end on the margins were written first; or None."""
        size = self.buffer.numel() - 2 * MARGIN
        before = (self.buffer[:MARGIN] != FILL).nonzero()
        if len(before):
            return int(before[-1]) - MARGIN
        behind = (self.buffer[MARGIN + size :] != FILL).nonzero()
        return int(behind[0]) if len(behind) else None
