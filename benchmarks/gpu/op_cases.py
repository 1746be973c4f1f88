"""Which cases are tried on a device: the lab's, over head sizes, groups, block sizes and dtypes; and larger ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

from yaie_cuda.lab import attention_cases
from yaie_cuda.lab.case import Case
from yaie_cuda.lab.cases import BUILDERS, Builder
from yaie_cuda.lab.request import ModelSizes

from .cascade_cases import cascade

ATTENTION: tuple[Builder, ...] = (attention_cases.decode, attention_cases.prefill, attention_cases.merge, cascade)
HEAD_DIMS, GROUPS, BLOCK_SIZES = (64, 80, 96, 128, 256), (1, 4, 8), (16, 32)
DTYPES = ("bfloat16", "float16")
SEED = 7


def grid(tiny: bool, quick: bool) -> list[ModelSizes]:
    """The sizes of models that attention is tried at, in an order that soon has touched everything."""
    if tiny:
        return [ModelSizes()]
    found = [
        ModelSizes(dtype=dtype, num_heads=2 * group, num_kv_heads=2, head_dim=head_dim, block_size=block_size)
        for dtype, head_dim, group, block_size in product(DTYPES, HEAD_DIMS, GROUPS, BLOCK_SIZES)
    ]
    random.Random(SEED).shuffle(found)
    return found[:12] if quick else found


def cases(tiny: bool, quick: bool) -> Iterator[Case]:
    """All cases, the small kernels' first."""
    sizes = [ModelSizes(dtype=dtype, hidden=512, intermediate=1024) for dtype in DTYPES]
    if not tiny:
        large = ModelSizes(num_heads=32, num_kv_heads=8, head_dim=128, hidden=4096, intermediate=14_336)
        sizes += [replace(large, dtype=dtype) for dtype in DTYPES]
    known = dict.fromkeys(chain.from_iterable(BUILDERS.values()))
    pairs = [
        *product((builder for builder in known if builder not in ATTENTION), sizes[:1] if tiny else sizes),
        *((builder, each) for each in grid(tiny, quick) for builder in ATTENTION),
    ]
    for builder, each in pairs:
        made = builder(each)
        yield from [next(made)] if tiny else made
