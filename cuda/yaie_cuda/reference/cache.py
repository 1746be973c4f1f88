"""Writing to the paged cache and copying its blocks, in torch.

Caches are per layer, K and V apart: [num_blocks, num_kv_heads, block_size, head_dim]; V may have another head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from yaie_cuda.paging import WriteIndex

from .fused import rotate


def write_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, index: WriteIndex) -> None:
    """Store key [num_tokens, num_kv_heads, head_dim] and value at the slots of `index`. Mutates both caches."""
    for states, cache in ((key, key_cache), (value, value_cache)):
        if index.kept is not None:
            states = states.index_select(0, index.kept)
        rows = index.rows(cache.shape[1])
        head_dim = cache.shape[3]
        new = states.transpose(0, 1).reshape(len(rows), head_dim).to(cache.dtype)
        cache.view(math.prod(cache.shape[:3]), head_dim).index_copy_(0, rows, new)


def rotary_reshape_and_cache(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
) -> None:
    """Rotate `query` in place, and store the rotated `key` and `value` at `slot_mapping`; `key` itself stays.

    cos and sin are [num_tokens, rotary_dim], as `rotate` takes them.
    """
    query.copy_(rotate(query, cos, sin))
    write_cache(rotate(key, cos, sin), value, key_cache, value_cache, WriteIndex(slot_mapping, key_cache.shape[2]))


def copy_blocks(key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy block i to block j for each row (i, j) of `block_mapping` int64 [n, 2], in every cache. Mutates them.

    Rows with a negative number are left out. No destination may come twice or be a source of the same call.
    """
    mapping = block_mapping.to(torch.int64)
    sources, destinations = mapping[(mapping >= 0).all(1)].unbind(1)
    for cache in (*key_caches, *value_caches):
        cache.index_copy_(0, destinations.to(cache.device), cache.index_select(0, sources.to(cache.device)))


def swap_blocks(sources: Sequence[Tensor], destinations: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy block i of each source to block j of its destination, for each row (i, j) of `block_mapping` int64 [n, 2].

    Rows with a negative number are left out. Mutates `destinations`; no destination may come twice.
    """
    pairs = [(source, destination) for source, destination in block_mapping.tolist() if min(source, destination) >= 0]
    for source, destination in zip(sources, destinations, strict=True):
        for from_block, to_block in pairs:
            destination[to_block].copy_(source[from_block])
