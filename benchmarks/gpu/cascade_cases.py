"""Cases of the cascade: groups of sequences below shared prefixes, and sequences below none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from yaie_cuda.lab.case import TOLERANCE, Case, Inventor, dtype_of
from yaie_cuda.lab.request import ModelSizes

GROUPS = (
    ("one group", ((5, 64, (1, 17, 40, 3, 33)),)),
    ("two groups and one alone", ((3, 32, (9, 1, 30)), (1, 0, (50,)), (2, 96, (16, 5)))),
)
"""(sequences, shared tokens, tokens of each one's own) of each group."""
Group = tuple[int, int, tuple[int, ...]]


def cascade(sizes: ModelSizes) -> Iterator[Case]:
    """Whole blocks are shared, as the radix tree shares them."""
    for title, groups in GROUPS:
        scaled = tuple((count, shared // 16 * sizes.block_size, own) for count, shared, own in groups)
        make = partial(arguments, sizes, scaled)
        yield Case("cascade_attention_decode", f"{title}, {sizes.dtype}", make, TOLERANCE[dtype_of(sizes)])


def arguments(sizes: ModelSizes, groups: Sequence[Group], invent: Inventor) -> Sequence[Any]:
    """Those of the op, in its order."""
    dtype, block = dtype_of(sizes), sizes.block_size
    tables, lens, shared_lens, starts, used = [], [], [], [0], 0
    total = sum(shared // block + sum(-(-own // block) for own in owns) for _, shared, owns in groups)
    order = invent.order(total + 2).tolist()
    for count, shared, owns in groups:
        head = order[used : used + shared // block]
        used += len(head)
        for own in owns:
            tail = order[used : used + -(-own // block)]
            used += len(tail)
            tables.append(head + tail)
            lens.append(shared + own)
            shared_lens.append(shared if count > 1 else 0)
        starts.append(len(lens))
    width = max(map(len, tables))
    padded = [table + [0] * (width - len(table)) for table in tables]
    cache = (total + 2, sizes.num_kv_heads, block, sizes.head_dim)
    rows = (len(lens), 1, sizes.num_heads)
    return [
        invent.normal(*rows, sizes.head_dim, dtype=dtype),
        invent.normal(*cache, dtype=dtype),
        invent.normal(*cache, dtype=dtype),
        torch.tensor(padded, dtype=torch.int32),
        torch.tensor(lens, dtype=torch.int32),
        torch.tensor(starts, dtype=torch.int32),
        torch.tensor(shared_lens, dtype=torch.int32),
        max(count for count, _, _ in groups),
        sizes.head_dim**-0.5,
        0.0,
        None,
        invent.unwritten(*rows, sizes.head_dim, dtype=dtype),
        invent.unwritten(*rows, dtype=torch.float32),
    ]
