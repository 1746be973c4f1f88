"""Radix attention: decodes below a shared prefix read the prefix once, together.

Sequences whose block tables begin with the same blocks (children of one node of the radix tree) form a group. The
query rows of a group are stacked into tiles and attend over the prefix as one sequence would; each sequence attends
over its own suffix; the two results are merged (Hydragen, Juravsky et al. 2024; cascade inference of FlashInfer, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import reference
from .attention import plan_paged_decode, rows_of, unserved
from .checks import check_index, check_shape, refuse
from .kernel import Launcher
from .library import define
from .paged_launch import Pages, Scoring, decode_launches, merge_launches, tile_launches
from .paging import ReadIndex
from .planning import DECODE_ROWS, tile_layout
from .prepared import Launch, Room, prepared

EXTRA_LAUNCHES = 24e6  # bytes that could be moved while the prefix and the merge start: 6 microseconds at 4 TB/s
FLOPS_PER_BYTE = 50.0  # of the prefix kernel at half of its rate, against memory
REREAD = 3.0  # how much faster a prefix comes from L2 than from memory
MARGIN = 1.25  # the estimate must promise this much


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """One layer's attention: query tokens a sequence, heads, numbers a head, bytes a number."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    q_len: int = 1
    itemsize: int = 2

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.num_kv_heads * self.head_dim * self.itemsize

    @property
    def result_bytes(self) -> int:
        """One result of one sequence in float32, with its lse."""
        return self.q_len * self.num_heads * (self.head_dim + 1) * 4


def flat_cost(groups: Iterable[tuple[int, int]], size: AttentionSize, l2_bytes: int) -> float:
    """Bytes that plain decodes read of the prefixes of `groups` (sequences, shared tokens), in terms of memory traffic.

    A prefix that half of L2 can hold is read from memory once; its other readers find it in L2.
    """
    total = 0.0
    for sequences, shared in groups:
        prefix = shared * size.token_bytes
        total += prefix * (1 + (sequences - 1) / (REREAD if prefix <= l2_bytes / 2 else 1.0))
    return total


def cascade_cost(groups: Iterable[tuple[int, int]], size: AttentionSize, l2_bytes: int, num_seqs: int) -> float:
    """What `flat_cost` counts, for the prefix kernel and the merge: reads, products, partial results, launches."""
    total = EXTRA_LAUNCHES + num_seqs * size.result_bytes * 4  # prefix and suffix results, written and read
    for sequences, shared in groups:
        prefix = shared * size.token_bytes
        rows = sequences * size.q_len * size.num_heads // size.num_kv_heads
        tile = tile_layout(size.head_dim, rows).rows
        tiles = math.ceil(rows / tile)
        reads = prefix * (1 + (tiles - 1) / (REREAD if prefix <= l2_bytes / 2 else 1.0))
        flops = 4.0 * tiles * tile * size.num_kv_heads * shared * size.head_dim
        total += max(reads, flops / FLOPS_PER_BYTE)
    return total


def worth_cascading(
    groups: Iterable[tuple[int, int]], size: AttentionSize, num_seqs: int, l2_bytes: int = 50_000_000
) -> bool:
    """Whether a batch of `num_seqs` decodes gains by the cascade; `groups` are (sequences, shared tokens) of each.

    The estimate leaves out what both ways read, the suffixes, and errs towards plain decodes.
    """
    found = [(sequences, shared) for sequences, shared in groups if sequences > 1 and shared > 0]
    if not found:
        return False
    return flat_cost(found, size, l2_bytes) > MARGIN * cascade_cost(found, size, l2_bytes, num_seqs)


def cascade_attention_decode(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    group_starts: Tensor,
    shared_lens: Tensor,
    max_group: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> None:
    """What `paged_attention_decode` gives; query [num_seqs, q_len, num_heads, head_dim].

    Group i is sequences group_starts[i] to group_starts[i + 1] (int32 [num_groups + 1]), at most `max_group` of them.
    The first shared_lens[s] (int32 [num_seqs], the same within a group, 0 for none) tokens of a sequence lie in the
    same blocks for all of its group, and end before the sequence's query tokens.
    """
    index = ReadIndex(block_tables, context_lens, query.shape[1], key_cache.shape[2])
    out.copy_(reference.attend(query, key_cache, value_cache, index, scale, softcap, sinks, lse))


@prepared
def cascade_attention_decode_kernel(
    launcher: Launcher,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    group_starts: Tensor,
    shared_lens: Tensor,
    max_group: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> tuple[Launch, ...]:
    """As the reference, in three launches: prefixes, suffixes, merge. Raises ValueError for what does not fit.

    Where a sequence has more than 16 query rows per key head its decode fills tiles already: one plain launch serves.
    """
    check_shape("query", query, ("num_seqs", "q_len", "num_heads", "head_dim"))
    num_seqs, q_len, num_heads, head_dim = query.shape
    _check_groups(num_seqs, group_starts, shared_lens, max_group)
    plain = (query, key_cache, value_cache, block_tables, context_lens, scale, 0, softcap, sinks, out, lse)
    refuse(unserved(query, key_cache, value_cache, block_tables, context_lens, scale, sinks, out, lse))
    stacked = rows_of(query)
    if q_len * num_heads // key_cache.shape[1] > DECODE_ROWS or stacked is None or not num_seqs:
        return plan_paged_decode(launcher, *plain)
    rows = (num_seqs * q_len, num_heads)
    prefix, prefix_lse = _room("prefix", *rows, head_dim), _room("prefix_lse", *rows)
    suffix, suffix_lse = _room("suffix", *rows, head_dim), _room("suffix_lse", *rows)
    before = tile_launches(
        launcher,
        stacked,
        Pages(key_cache, block_tables),
        Scoring(scale, 0, softcap),
        num_seqs=group_starts.shape[0] - 1,
        most_tokens=max_group * q_len,
        q_len=q_len,
        shared=True,
        wide_out=True,
        pointers={
            "context_lens": "shared_lens",
            "starts": "group_starts",
            "sinks": None,
            "out": prefix,
            "lse": prefix_lse,
        },
    )
    behind = decode_launches(
        launcher,
        query,
        Pages(key_cache, block_tables),
        Scoring(scale, 0, softcap, sinks),
        wide_out=True,
        pointers={"first_keys": "shared_lens", "out": suffix, "lse": suffix_lse},
    )
    states = {"out_a": prefix, "lse_a": prefix_lse, "out_b": suffix, "lse_b": suffix_lse}
    total = _room("lse", *rows) if lse is None else "lse"
    return (*before, *behind, *merge_launches(prefix.dtype, out, {**states, "lse": total}))


def _check_groups(num_seqs: int, group_starts: Tensor, shared_lens: Tensor, max_group: int) -> None:
    check_index("shared_lens", shared_lens, torch.int32, (num_seqs,))
    check_index("group_starts", group_starts, torch.int32, ("groups",))
    if not 1 <= max_group <= max(num_seqs, 1):
        raise ValueError(f"max_group is {max_group}; 1 to {num_seqs} sequences make a group")


def _room(name: str, *shape: int) -> Room:
    return Room(f"cascade_{name}", shape, torch.float32)


define(
    "cascade_attention_decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor context_lens, Tensor group_starts, Tensor shared_lens, int max_group, float scale, float softcap, "
    "Tensor? sinks, Tensor(a!) out, Tensor(b!)? lse) -> ()",
    reference=cascade_attention_decode,
    kernel=cascade_attention_decode_kernel,
)
