"""Memory in pages of 2 MiB: what is streamed once a step, weights above all, is read faster.

A core looks up every page that it comes to, and its prefetchers stop at the end of one. In a virtual machine one core
read 24 GB/s from pages of 4 KiB, and 34 from these.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch
from torch import Tensor

HUGE = 2**21
CHUNK = 32 * HUGE
"""What is asked for at once: pieces lie in it side by side, since most weights end within a page."""
ALIGNED = 64


class Pages:
    """Hands out memory piece by piece; it goes back to the system with the last tensor of a chunk.

    Linux gives huge pages where `/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` or `always`, and has some;
    elsewhere these are plain ones. What nobody wrote to takes no memory.
    """

    def __init__(self) -> None:
        self._rest: Tensor | None = None  # of the chunk that was asked for last

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        """`count` numbers, [count]; their content is undefined. Raises MemoryError."""
        size = -(-count * dtype.itemsize // ALIGNED) * ALIGNED
        if self._rest is None or size > len(self._rest):
            self._rest = _mapped(max(size, CHUNK))
        piece, rest = self._rest[: count * dtype.itemsize], self._rest[size:]
        self._rest = rest if len(rest) else None
        return piece.view(dtype)


def _mapped(size: int) -> Tensor:
    """At least `size` bytes from the start of a huge page on."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return torch.empty(size, dtype=torch.uint8)
    try:
        memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be had: {error}") from error
    with suppress(OSError):  # a kernel without them
        memory.madvise(advice)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    return whole[-whole.data_ptr() % HUGE :][:size]
