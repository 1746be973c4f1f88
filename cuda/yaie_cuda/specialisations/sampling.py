"""Kernels that turn logits into tokens: penalties and the draw."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

from yaie_cuda.kernel import Kernel, Specialisation

TOP_K_TOP_P_SAMPLE = Kernel(
    "top_k_top_p_sample",
    (
        *((name, "p") for name in ("logits", "temperature", "top_k", "top_p", "min_p", "seed", "counter", "out")),
        ("stride", "q"),
        ("vocab", "i"),
        ("unused", "i"),
    ),
)
APPLY_PENALTIES = Kernel(
    "apply_penalties",
    (
        *((name, "p") for name in ("logits", "token_ids", "counts", "row_starts")),
        *((name, "p") for name in ("repetition", "presence", "frequency")),
        ("stride", "q"),
        ("vocab", "i"),
        ("unused", "i"),
    ),
)
KERNELS = (TOP_K_TOP_P_SAMPLE, APPLY_PENALTIES)
SCALARS = ("bfloat16", "float16", "float32")
MOST_TOKENS = 2**19
"""Weights are held in units of 2**-44 of the best one's, and their sum must stay below 2**64."""
WIDEST = 4
SMALL, LARGE = 8192, 131072
"""Vocabularies for a small block, and for a large one."""


@functools.cache
def sample_specialisation(scalar: str, width: int, vocab: int) -> Specialisation:
    """The draw, `width` logits at a time. CAPACITY is how many tokens the list in shared memory holds."""
    threads, capacity = (128, 1024) if vocab <= SMALL else (512, 8192)
    return TOP_K_TOP_P_SAMPLE.specialise(threads, 8 * capacity, SCALAR=scalar, WIDTH=width, CAPACITY=capacity)


@functools.cache
def penalties_specialisation() -> Specialisation:
    """apply_penalties, which there is one of."""
    return APPLY_PENALTIES.specialise(256)


def ci() -> Iterator[Specialisation]:
    """Both sizes of block in one type, the large one in all."""
    yield penalties_specialisation()
    yield sample_specialisation("float32", WIDEST, SMALL)
    yield from (sample_specialisation(scalar, WIDEST, LARGE) for scalar in SCALARS)


def everything() -> Iterator[Specialisation]:
    """All types, access widths and sizes of block."""
    yield penalties_specialisation()
    for scalar, width, vocab in product(SCALARS, (1, 2, 4), (SMALL, LARGE)):
        yield sample_specialisation(scalar, width, vocab)
