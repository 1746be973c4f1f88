"""A case: one call of an op on small invented inputs. What the reference makes of it is what a kernel must give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .request import ModelSizes

# Largest difference of an element over the sum of its own size and the root mean square of its tensor: about one
# rounding step of the dtype more than the two roundings that are allowed to differ.
TOLERANCE = {torch.bfloat16: 1.2e-2, torch.float16: 2e-3, torch.float32: 1e-4}


@dataclass(frozen=True, slots=True)
class Case:
    """`op` of namespace `yaie` on the arguments that `make` invents; every call of `make` gives the same
    ones for the same seed.

    `tolerance` 0 asks for equal bits.
    """

    op: str
    title: str
    make: Callable[[Inventor], Sequence[Any]]
    tolerance: float = 0.0


class Inventor:
    """Seeded tensors on the CPU."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        """Normally distributed values."""
        return (torch.randn(shape, generator=self._generator) * scale).to(dtype)

    def order(self, count: int) -> Tensor:
        """A permutation of 0 .. count - 1, int64."""
        return torch.randperm(count, generator=self._generator)

    def unwritten(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """What nobody has written yet: NaN, or the lowest integer."""
        return torch.full(shape, torch.nan if dtype.is_floating_point else torch.iinfo(dtype).min, dtype=dtype)


def dtype_of(sizes: ModelSizes) -> torch.dtype:
    """The torch dtype that `sizes` name."""
    found = getattr(torch, sizes.dtype)
    if found not in TOLERANCE:
        raise ValueError(f"dtype {sizes.dtype!r} has no kernels")
    return found  # type: ignore[no-any-return]
