"""How far two lists of token ids agree. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence


def common_start(a: Sequence[int], b: Sequence[int], known: int = 0) -> int:
    """Length of the common start, of which `known` tokens are known; halves are compared, since that runs in C."""
    low, high = known, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
