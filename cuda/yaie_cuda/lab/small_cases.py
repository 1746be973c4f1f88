"""Cases of the kernels beside attention: cache, norms, gates, rotary embedding, sampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .case import TOLERANCE, Case, Inventor, dtype_of
from .request import ModelSizes

EPS = 1e-5


def silu_and_mul(sizes: ModelSizes) -> Iterator[Case]:
    """One row, a few rows, and a width that no vector of values divides."""

    def make(rows: int, width: int, invent: Inventor) -> Sequence[Any]:
        dtype = dtype_of(sizes)
        return [invent.normal(rows, 2 * width, dtype=dtype), invent.unwritten(rows, width, dtype=dtype)]

    for rows, width in ((1, sizes.intermediate), (5, sizes.intermediate), (3, 777)):
        title = f"{rows} x {width} {sizes.dtype}"
        yield Case("silu_and_mul", title, partial(make, rows, width), TOLERANCE[dtype_of(sizes)])


def rms_norm(sizes: ModelSizes) -> Iterator[Case]:
    """With and without the addition to the residual stream; rows that a warp and that a block share."""

    def make(rows: int, hidden: int, added: bool, invent: Inventor) -> Sequence[Any]:
        dtype = dtype_of(sizes)
        return [
            invent.normal(rows, hidden, dtype=dtype),
            invent.normal(hidden, dtype=dtype),
            EPS,
            invent.normal(rows, hidden, dtype=dtype) if added else None,
            invent.unwritten(rows, hidden, dtype=dtype),
        ]

    shapes = [(1, sizes.hidden, False), (6, sizes.hidden, True), (3, 4096, True), (2, 777, False)]
    for rows, hidden, added in (*shapes, (5, sizes.head_dim, False)):  # the last as for queries and keys
        title = f"{rows} x {hidden} {sizes.dtype}{' with residual' if added else ''}"
        yield Case("rms_norm", title, partial(make, rows, hidden, added), TOLERANCE[dtype_of(sizes)])


def rotary_embedding(sizes: ModelSizes) -> Iterator[Case]:
    """Tokens at positions out of order; the whole head rotated, and half of it."""

    def make(tokens: int, rotated: int, invent: Inventor) -> Sequence[Any]:
        dtype = dtype_of(sizes)
        cos, sin = rotary_table(64, rotated, dtype)
        return [
            invent.normal(tokens, sizes.num_heads, sizes.head_dim, dtype=dtype),
            invent.normal(tokens, sizes.num_kv_heads, sizes.head_dim, dtype=dtype),
            cos,
            sin,
            invent.order(64)[:tokens],
        ]

    for tokens, rotated in ((1, sizes.head_dim), (7, sizes.head_dim), (7, sizes.head_dim // 2)):
        title = f"{tokens} tokens, {rotated} of {sizes.head_dim} rotated, {sizes.dtype}"
        yield Case("rotary_embedding", title, partial(make, tokens, rotated), TOLERANCE[dtype_of(sizes)])


def reshape_and_cache(sizes: ModelSizes) -> Iterator[Case]:
    """Slots out of order, one of them -1, which is not written."""

    for tokens in (1, 37):
        yield Case("reshape_and_cache", f"{tokens} tokens {sizes.dtype}", partial(_written, sizes, tokens))


def copy_blocks(sizes: ModelSizes) -> Iterator[Case]:
    """Three layers; one mapping of -1, which copies nothing."""

    def make(invent: Inventor) -> Sequence[Any]:
        shape = (9, sizes.num_kv_heads, sizes.block_size, sizes.head_dim)
        layers = [[invent.normal(*shape, dtype=dtype_of(sizes)) for _ in range(3)] for _ in range(2)]
        return [*layers, torch.tensor([[0, 5], [3, 1], [-1, -1], [8, 2]])]

    yield Case("copy_blocks", f"3 layers, 3 blocks, {sizes.dtype}", make)


def rotary_reshape_and_cache(sizes: ModelSizes) -> Iterator[Case]:
    """Query rotated in place, key rotated into the cache, value written; the whole head, and half of it."""

    def make(tokens: int, rotated: int, invent: Inventor) -> Sequence[Any]:
        dtype = dtype_of(sizes)
        query = invent.normal(tokens, sizes.num_heads, sizes.head_dim, dtype=dtype)
        key, value, *caches, slots = _written(sizes, tokens, invent)
        cos, sin = (table[:tokens].contiguous() for table in rotary_table(64, rotated, dtype))
        return [query, key, value, cos, sin, *caches, slots]

    for tokens, rotated in ((1, sizes.head_dim), (21, sizes.head_dim), (21, sizes.head_dim // 2)):
        title = f"{tokens} tokens, {rotated} of {sizes.head_dim} rotated, {sizes.dtype}"
        yield Case("rotary_reshape_and_cache", title, partial(make, tokens, rotated), TOLERANCE[dtype_of(sizes)])


def rotary_table(positions: int, rotated: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, rotated], each angle twice as transformers lays it out."""
    frequencies = 10_000.0 ** (-torch.arange(0, rotated, 2) / rotated)
    angles = torch.outer(torch.arange(positions), frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _written(sizes: ModelSizes, tokens: int, invent: Inventor) -> list[Tensor]:
    """Key, value, both caches, and slots out of order; where there are several, one is -1 and nothing is written."""
    dtype, block = dtype_of(sizes), sizes.block_size
    blocks = tokens // block + 2
    slots = invent.order(blocks * block)[:tokens]
    if tokens > 1:
        slots[tokens // 2] = -1
    shapes = [(tokens, sizes.num_kv_heads, sizes.head_dim)] * 2
    shapes += [(blocks, sizes.num_kv_heads, block, sizes.head_dim)] * 2  # type: ignore[list-item]
    return [*(invent.normal(*shape, dtype=dtype) for shape in shapes), slots]
