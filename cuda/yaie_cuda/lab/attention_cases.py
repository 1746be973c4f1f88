"""Cases of attention over the paged cache. Slots that belong to no token hold NaN: a kernel that reads one shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .case import TOLERANCE, Case, Inventor, dtype_of
from .request import ModelSizes


@dataclass(frozen=True, slots=True)
class Options:
    """How a model attends; 0 and False are off."""

    window: int = 0
    softcap: float = 0.0
    sinks: bool = False

    @property
    def title(self) -> str:
        """What is on, in words."""
        on = [f"window {self.window}"] if self.window else []
        on += ["softcap"] if self.softcap else []
        return "".join(f", {each}" for each in (*on, *(["sinks"] if self.sinks else [])))


ALL = Options(window=20, softcap=30.0, sinks=True)


def decode(sizes: ModelSizes) -> Iterator[Case]:
    """Short and long contexts beside each other, block edges, every option at once, two rows per sequence."""
    plain = Options()
    for contexts, rows, options in (
        ((1, 16, 17), 1, plain),
        ((37, 5, 150), 1, ALL),
        ((40, 3), 2, plain),
        ((700,), 1, plain),
    ):
        title = f"contexts {_joined(contexts)}{f', {rows} rows' if rows > 1 else ''}{options.title}"
        make = partial(_decode, sizes, contexts, rows, options)
        yield Case("paged_attention_decode", f"{title}, {sizes.dtype}", make, TOLERANCE[dtype_of(sizes)])


def prefill(sizes: ModelSizes) -> Iterator[Case]:
    """Whole prompts, chunks that continue a context, tails that fill no tile, keys that are split over blocks."""
    plain = Options()
    for chunks, options in (
        (((16, 16), (1, 33)), plain),
        (((37, 37), (20, 100)), plain),
        (((50, 90), (3, 3)), ALL),
        (((3, 700),), plain),
    ):
        title = ", ".join(f"{rows} of {context}" for rows, context in chunks)
        make = partial(_prefill, sizes, chunks, options)
        case_title = f"chunks {title}{options.title}, {sizes.dtype}"
        yield Case("paged_attention_prefill", case_title, make, TOLERANCE[dtype_of(sizes)])


def merge(sizes: ModelSizes) -> Iterator[Case]:
    """Two parts of an attention become one; a part that saw nothing counts for nothing.

    Parts in the type of the result, and in float32 as a cascade leaves them.
    """

    def make(parts_dtype: torch.dtype, invent: Inventor) -> Sequence[Any]:
        shape = (7, sizes.num_heads, sizes.head_dim)
        parts: list[Tensor] = []
        for empty in (2, 4):
            out, lse = invent.normal(*shape, dtype=parts_dtype), invent.normal(*shape[:2], dtype=torch.float32)
            out[empty], lse[empty] = 0, -math.inf
            parts += [out, lse * 4]
        return [
            *parts,
            invent.unwritten(*shape, dtype=dtype_of(sizes)),
            invent.unwritten(*shape[:2], dtype=torch.float32),
        ]

    for parts_dtype in dict.fromkeys((dtype_of(sizes), torch.float32)):
        wide = " of float32 parts" if parts_dtype != dtype_of(sizes) else ""
        title = f"7 tokens, {sizes.num_heads} heads, {sizes.dtype}{wide}"
        yield Case("merge_attention_states", title, partial(make, parts_dtype), TOLERANCE[dtype_of(sizes)])


def _decode(
    sizes: ModelSizes, contexts: tuple[int, ...], rows: int, options: Options, invent: Inventor
) -> Sequence[Any]:
    shape = (len(contexts), rows, sizes.num_heads)
    return [
        invent.normal(*shape, sizes.head_dim, dtype=dtype_of(sizes)),
        *_paged(sizes, contexts, invent),
        torch.tensor(contexts, dtype=torch.int32),
        *_how(sizes, options, invent),
        invent.unwritten(*shape, sizes.head_dim, dtype=dtype_of(sizes)),
        invent.unwritten(*shape, dtype=torch.float32),
    ]


def _prefill(
    sizes: ModelSizes, chunks: tuple[tuple[int, int], ...], options: Options, invent: Inventor
) -> Sequence[Any]:
    rows, contexts = tuple(chunk[0] for chunk in chunks), tuple(chunk[1] for chunk in chunks)
    starts = torch.tensor([0, *rows], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    shape = (sum(rows), sizes.num_heads)
    return [
        invent.normal(*shape, sizes.head_dim, dtype=dtype_of(sizes)),
        *_paged(sizes, contexts, invent),
        starts,
        torch.tensor(contexts, dtype=torch.int32),
        max(rows),
        *_how(sizes, options, invent),
        invent.unwritten(*shape, sizes.head_dim, dtype=dtype_of(sizes)),
        invent.unwritten(*shape, dtype=torch.float32),
    ]


def _paged(sizes: ModelSizes, contexts: Sequence[int], invent: Inventor) -> tuple[Tensor, Tensor, Tensor]:
    """Key cache, value cache and block tables int32, blocks in no order."""
    counts = [-(-context // sizes.block_size) for context in contexts]
    free = invent.order(sum(counts) + 3).tolist()
    tables = torch.zeros(len(contexts), max(counts), dtype=torch.int32)
    shape = (sum(counts) + 3, sizes.num_kv_heads, sizes.block_size, sizes.head_dim)
    caches = [invent.unwritten(*shape, dtype=dtype_of(sizes)) for _ in range(2)]
    for row, (context, count) in enumerate(zip(contexts, counts, strict=True)):
        for place in range(count):
            block = free.pop()
            tables[row, place] = block
            filled = min(sizes.block_size, context - place * sizes.block_size)
            for cache in caches:
                fresh = (sizes.num_kv_heads, filled, sizes.head_dim)
                cache[block, :, :filled] = invent.normal(*fresh, dtype=dtype_of(sizes))
    return caches[0], caches[1], tables


def _how(sizes: ModelSizes, options: Options, invent: Inventor) -> tuple[float, int, float, Tensor | None]:
    """scale, sliding_window, softcap, sinks."""
    sinks = invent.normal(sizes.num_heads, dtype=torch.float32) if options.sinks else None
    return sizes.head_dim**-0.5, options.window, options.softcap, sinks


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
