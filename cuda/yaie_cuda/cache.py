"""Ops on the paged cache: writing new tokens and copying blocks.

A slot or mapping of -1 writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from . import reference
from .library import define
from .paging import WriteIndex


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Store key and value [num_tokens, num_kv_heads, head_dim] at `slot_mapping` int64 [num_tokens]."""
    index = WriteIndex(slot_mapping, key_cache.shape[2])
    reference.write_cache(key, value, key_cache, value_cache, index)


def copy_blocks(key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy whole blocks, (source, destination) per row of `block_mapping` int64 [n, 2], in all layers."""
    reference.copy_blocks(key_caches, value_caches, block_mapping)


define(
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping) -> ()",
    reference=reshape_and_cache,
)
define(
    "copy_blocks(Tensor(a!)[] key_caches, Tensor(b!)[] value_caches, Tensor block_mapping) -> ()",
    reference=copy_blocks,
)
