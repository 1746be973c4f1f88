"""Kernels of the paged cache: writing new tokens, with the rotary embedding or without, and copying blocks."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

from yaie_cuda.kernel import Kernel, Specialisation

from .fused import SCALARS, WIDEST, tables_of

RESHAPE_AND_CACHE = Kernel(
    "reshape_and_cache",
    (
        *((name, "p") for name in ("key", "value", "key_cache", "value_cache", "slot_mapping")),
        *((f"{name}_stride", "q") for name in ("key_token", "key_head", "value_token", "value_head")),
        *((name, "i") for name in ("num_kv_heads", "block_size", "key_units", "value_units")),
    ),
)
ROTARY_RESHAPE_AND_CACHE = Kernel(
    "rotary_reshape_and_cache",
    (
        *((name, "p") for name in ("query", "key", "value", "cos", "sin", "key_cache", "value_cache", "slot_mapping")),
        *((f"{part}_{axis}_stride", "q") for part in ("query", "key", "value") for axis in ("token", "head")),
        ("table_stride", "q"),
        *((name, "i") for name in ("num_heads", "num_kv_heads", "head_dim", "value_dim", "half", "block_size")),
    ),
)
COPY_BLOCKS = Kernel(
    "copy_blocks",
    (*((name, "p") for name in ("caches", "block_bytes", "block_mapping")), ("parts", "i"), ("unused", "i")),
)
KERNELS = (RESHAPE_AND_CACHE, ROTARY_RESHAPE_AND_CACHE, COPY_BLOCKS)
UNITS = {16: "uint4", 8: "uint2", 4: "uint32_t", 2: "uint16_t", 1: "uint8_t"}
THREADS = 128
PART = THREADS * 4 * 16
"""Bytes that one block of copy_blocks moves."""


@functools.cache
def write_specialisation(unit: int) -> Specialisation:
    """reshape_and_cache that moves `unit` bytes at a time."""
    return RESHAPE_AND_CACHE.specialise(THREADS, UNIT=UNITS[unit])


@functools.cache
def rotary_write_specialisation(scalar: str, table: str, width: int) -> Specialisation:
    """rotary_reshape_and_cache that moves `width` scalars at a time; `table` is the type of cos and sin."""
    return ROTARY_RESHAPE_AND_CACHE.specialise(THREADS, SCALAR=scalar, TABLE=table, WIDTH=width)


@functools.cache
def copy_specialisation() -> Specialisation:
    """copy_blocks, which there is one of."""
    return COPY_BLOCKS.specialise(THREADS)


def ci() -> Iterator[Specialisation]:
    """The widest accesses, and one that a small head needs."""
    yield copy_specialisation()
    yield write_specialisation(16)
    yield write_specialisation(8)
    for scalar in SCALARS:
        yield rotary_write_specialisation(scalar, scalar, WIDEST[scalar])
    yield rotary_write_specialisation("bfloat16", "float32", WIDEST["bfloat16"])


def everything() -> Iterator[Specialisation]:
    """All access widths and types."""
    yield copy_specialisation()
    yield from map(write_specialisation, UNITS)
    for scalar, width in product(SCALARS, (1, 2, 4, 8)):
        if width <= WIDEST[scalar]:
            for table in tables_of(scalar):
                yield rotary_write_specialisation(scalar, table, width)
