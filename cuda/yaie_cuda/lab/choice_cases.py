"""Cases of what chooses tokens and prefixes: penalties, the draw of a token, the match against a radix tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch

from .case import TOLERANCE, Case, Inventor
from .request import ModelSizes


def top_k_top_p_sample(sizes: ModelSizes) -> Iterator[Case]:
    """Rows with each limit alone, with all of them, greedy, and one that holds NaN."""

    def make(vocab: int, invent: Inventor) -> Sequence[Any]:
        rows = [(0.0, 0, 1.0, 0.0), (0.7, 0, 1.0, 0.0), (1.0, 5, 1.0, 0.0), (1.0, 0, 0.8, 0.0), (1.3, 0, 1.0, 0.1)]
        rows += [(0.9, 40, 0.9, 0.02), (1.0, 0, 1.0, 0.0)]
        temperature, top_k, top_p, min_p = zip(*rows, strict=True)
        logits = invent.normal(len(rows), vocab, dtype=torch.float32, scale=3.0)
        logits[-1, 3] = torch.nan
        return [
            logits,
            torch.tensor(temperature),
            torch.tensor(top_k, dtype=torch.int32),
            torch.tensor(top_p),
            torch.tensor(min_p),
            invent.order(len(rows)) + 11,
            torch.arange(len(rows)) << 32,
            invent.unwritten(len(rows), dtype=torch.int64),
        ]

    for vocab in (sizes.vocab, 37):
        yield Case("top_k_top_p_sample", f"7 rows of {vocab:,} tokens", partial(make, vocab))


def apply_penalties(sizes: ModelSizes) -> Iterator[Case]:
    """Rows that have seen nothing, a few tokens, and more than a block has threads."""

    def make(invent: Inventor) -> Sequence[Any]:
        seen = (0, min(3, sizes.vocab), min(400, sizes.vocab))
        ids = torch.cat([invent.order(sizes.vocab)[:count] for count in seen])
        return [
            invent.normal(len(seen), sizes.vocab, dtype=torch.float32, scale=3.0),
            ids,
            (ids % 3).float(),
            torch.tensor([0, *seen], dtype=torch.int32).cumsum(0, dtype=torch.int32),
            torch.tensor([1.2, 1.0, 0.8]),
            torch.tensor([0.5, 0.0, -0.5]),
            torch.tensor([0.1, 0.7, 0.0]),
        ]

    yield Case("apply_penalties", f"3 rows of {sizes.vocab:,} tokens", make, TOLERANCE[torch.float32])


def radix_match(sizes: ModelSizes) -> Iterator[Case]:
    """Prompts that the tree knows whole, in part, in the middle of a node, and not at all; one without a root."""

    def make(invent: Inventor) -> Sequence[Any]:
        # Node 0 is the root; below it 1 [5 6 7] and 2 [9]; below node 1: 3 [1] and 4 [2 2 .. 2], longer than a warp.
        runs = [[], [5, 6, 7], [9], [1], [2] * 70]
        children = [1, 3, 5, 5, 5, 5]
        prompts = [[5, 6, 7, 1], [5, 6, 8], [9, 9], [4], [], [5, 6, 7, *[2] * 70, 3], [5, 6]]
        roots = [0, 0, 0, 0, 0, 0, -1]
        ints = partial(torch.tensor, dtype=torch.int32)
        return [
            ints(list(chain(*runs))),
            _starts(runs),
            ints(children),
            ints(roots),
            ints(list(chain(*prompts))),
            _starts(prompts),
            invent.unwritten(len(prompts), dtype=torch.int32),
            invent.unwritten(len(prompts), dtype=torch.int32),
        ]

    yield Case("radix_match", "7 prompts, 5 nodes", make)


def _starts(runs: Sequence[Sequence[int]]) -> torch.Tensor:
    """Where each run begins when they lie end to end, and where the last ends; int32."""
    return torch.tensor([0, *map(len, runs)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
