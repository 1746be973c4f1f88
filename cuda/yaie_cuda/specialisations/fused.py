"""Kernels between a model's matrix products: norm, gate and rotary embedding."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

from yaie_cuda.kernel import Kernel, Specialisation

RMS_NORM = Kernel(
    "rms_norm",
    (
        *((name, "p") for name in ("input", "weight", "residual", "out")),
        *((f"{name}_stride", "q") for name in ("input", "residual", "out")),
        ("rows", "i"),
        ("hidden", "i"),
        ("eps", "f"),
        ("unused", "i"),
    ),
)
SILU_AND_MUL = Kernel(
    "silu_and_mul",
    (("input", "p"), ("out", "p"), ("input_stride", "q"), ("out_stride", "q"), ("width", "i"), ("unused", "i")),
)
ROTARY_EMBEDDING = Kernel(
    "rotary_embedding",
    (
        *((name, "p") for name in ("query", "key", "cos", "sin", "positions")),
        *((f"{part}_{axis}_stride", "q") for part in ("query", "key") for axis in ("token", "head")),
        ("table_stride", "q"),
        *((name, "i") for name in ("num_heads", "num_kv_heads", "half", "unused")),
    ),
)
KERNELS = (RMS_NORM, SILU_AND_MUL, ROTARY_EMBEDDING)
WIDEST = {"bfloat16": 8, "float16": 8, "float32": 4}
"""Scalars in 16 bytes."""
SCALARS = tuple(WIDEST)
SILU_THREADS = 256
ROTARY_THREADS = 128
STEPS = (1, 2)
"""How many chunks of a row a thread of rms_norm holds in registers; more would spill."""


@functools.cache
def rms_norm_specialisation(scalar: str, width: int, hidden: int) -> Specialisation | None:
    """Rows of up to 2 chunks per lane take one warp; longer ones a block, with as few threads as hold 2 chunks each.

    None: a row of `hidden` does not fit into the registers of the largest block.
    """
    chunks = -(-hidden // width)
    row_threads = next((threads for threads in (32, 128, 256, 512) if chunks <= 2 * threads), 1024)
    steps = next((steps for steps in STEPS if chunks <= steps * row_threads), 0)
    if not steps:
        return None
    return RMS_NORM.specialise(max(row_threads, 128), SCALAR=scalar, WIDTH=width, ROW_THREADS=row_threads, STEPS=steps)


@functools.cache
def rows_per_block(norm: Specialisation) -> int:
    """How many rows a block of rms_norm takes."""
    return norm.threads // int(dict(norm.defines)["ROW_THREADS"])


@functools.cache
def silu_specialisation(scalar: str, width: int) -> Specialisation:
    """silu_and_mul of `width` scalars a thread."""
    return SILU_AND_MUL.specialise(SILU_THREADS, SCALAR=scalar, WIDTH=width)


@functools.cache
def rotary_specialisation(scalar: str, table: str, width: int) -> Specialisation:
    """rotary_embedding of `width` pairs a thread; `table` is the type of cos and sin."""
    return ROTARY_EMBEDDING.specialise(ROTARY_THREADS, SCALAR=scalar, TABLE=table, WIDTH=width)


def tables_of(scalar: str) -> tuple[str, ...]:
    """The types that cos and sin may have."""
    return tuple(dict.fromkeys((scalar, "float32")))


def ci() -> Iterator[Specialisation]:
    """The widest accesses; norms of a head, and of a model's rows in registers as they can be."""
    for scalar in SCALARS:
        yield silu_specialisation(scalar, WIDEST[scalar])
        yield from (rotary_specialisation(scalar, table, WIDEST[scalar]) for table in tables_of(scalar))
        for hidden in (128, 4096, 16384):
            norm = rms_norm_specialisation(scalar, WIDEST[scalar], hidden)
            if norm is not None:
                yield norm


def everything() -> Iterator[Specialisation]:
    """All access widths, types and lengths of rows."""
    for scalar, width in product(SCALARS, (1, 2, 4, 8)):
        if width > WIDEST[scalar]:
            continue
        yield silu_specialisation(scalar, width)
        yield from (rotary_specialisation(scalar, table, width) for table in tables_of(scalar))
        for chunks in (32, 64, 128, 256, 512, 1024, 2048):
            norm = rms_norm_specialisation(scalar, width, chunks * width)
            if norm is not None:
                yield norm
