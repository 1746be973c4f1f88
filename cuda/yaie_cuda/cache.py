"""Ops on the paged cache: writing new tokens, with the rotary embedding or without, and moving blocks.

Caches are [num_blocks, num_kv_heads, block_size, head_dim], K and V apart. A slot or mapping of -1 writes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from . import reference
from .checks import SCALARS, access_width, check_index, check_shape, refuse, scattered, unlike
from .fused import rotary_problem
from .kernel import Launcher
from .library import define
from .paging import WriteIndex
from .prepared import Launch, prepared
from .specialisations.cache import (
    COPY_BLOCKS,
    PART,
    THREADS,
    copy_specialisation,
    rotary_write_specialisation,
    write_specialisation,
)

# ---- new tokens


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Store key and value [num_tokens, num_kv_heads, head_dim] at `slot_mapping` int64 [num_tokens]."""
    index = WriteIndex(slot_mapping, key_cache.shape[2])
    reference.write_cache(key, value, key_cache, value_cache, index)


def _write_problem(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> str:
    """Why no kernel writes these; "" when one does."""
    return (
        unlike("value", value, key.dtype, "key")
        or unlike("key_cache", key_cache, key.dtype, "key")
        or unlike("value_cache", value_cache, key.dtype, "key")
        or scattered("key", key)
        or scattered("value", value)
    )


@prepared
def reshape_and_cache_kernel(
    launcher: Launcher, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Launch, ...]:
    """As `reshape_and_cache`, in one launch. Raises ValueError for shapes and strides that no kernel takes."""
    _check_write(key, value, key_cache, value_cache, slot_mapping)
    refuse(_write_problem(key, value, key_cache, value_cache))
    num_tokens, num_kv_heads, key_dim = key.shape
    value_dim, size = value.shape[2], key.element_size()
    if not num_tokens * num_kv_heads * (key_dim + value_dim):
        return ()
    strides = (*key.stride()[:2], *value.stride()[:2])
    unit = size * access_width(16 // size, (key_dim, value_dim, *strides), (key, value, key_cache, value_cache))
    per_unit = unit // size
    work = num_kv_heads * (key_dim + value_dim) // per_unit
    numbers = {
        "key_token_stride": strides[0] // per_unit,
        "key_head_stride": strides[1] // per_unit,
        "value_token_stride": strides[2] // per_unit,
        "value_head_stride": strides[3] // per_unit,
        "num_kv_heads": num_kv_heads,
        "block_size": key_cache.shape[2],
        "key_units": key_dim // per_unit,
        "value_units": value_dim // per_unit,
    }
    return (Launch(write_specialisation(unit), (num_tokens, -(-work // THREADS), 1), numbers),)


@prepared
def rotary_reshape_and_cache_kernel(
    launcher: Launcher,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
) -> tuple[Launch, ...]:
    """As `reference.rotary_reshape_and_cache`, in one launch. Raises ValueError for what no kernel takes."""
    _check_write(key, value, key_cache, value_cache, slot_mapping)
    num_tokens, num_kv_heads, head_dim = key.shape
    check_shape("query", query, (num_tokens, "num_heads", head_dim))
    for name, table in (("cos", cos), ("sin", sin)):
        check_shape(name, table, (num_tokens, "rotary_dim"))
    refuse(rotary_problem(query, key, cos, sin) or _write_problem(key, value, key_cache, value_cache))
    if not num_tokens:
        return ()
    num_heads, value_dim, half = query.shape[1], value.shape[2], cos.shape[1] // 2
    strides = tuple(stride for states in (query, key, value) for stride in states.stride()[:2])
    width = access_width(
        16 // key.element_size(),
        (head_dim, value_dim, half, cos.stride(0), *strides),
        (query, key, value, cos, sin, key_cache, value_cache),
    )
    work = (num_heads * half + num_kv_heads * (head_dim - half + value_dim)) // width
    if not work:
        return ()
    numbers = {
        "query_token_stride": strides[0],
        "query_head_stride": strides[1],
        "key_token_stride": strides[2],
        "key_head_stride": strides[3],
        "value_token_stride": strides[4],
        "value_head_stride": strides[5],
        "table_stride": cos.stride(0),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "value_dim": value_dim,
        "half": half,
        "block_size": key_cache.shape[2],
    }
    specialisation = rotary_write_specialisation(SCALARS[key.dtype], SCALARS[cos.dtype], width)
    return (Launch(specialisation, (num_tokens, -(-work // THREADS), 1), numbers),)


def _check_write(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    check_shape("key", key, ("num_tokens", "num_kv_heads", "head_dim"))
    num_tokens, num_kv_heads, head_dim = key.shape
    check_shape("value", value, (num_tokens, num_kv_heads, "value_dim"))
    check_index("slot_mapping", slot_mapping, torch.int64, (num_tokens,))
    check_index("key_cache", key_cache, key_cache.dtype, ("num_blocks", num_kv_heads, "block_size", head_dim))
    shape = (key_cache.shape[0], num_kv_heads, key_cache.shape[2], value.shape[2])
    check_index("value_cache", value_cache, value_cache.dtype, shape)


# ---- whole blocks


def copy_blocks(key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy whole blocks, (source, destination) per row of `block_mapping` int64 [n, 2], in all layers."""
    reference.copy_blocks(key_caches, value_caches, block_mapping)


def copy_blocks_kernel(
    launcher: Launcher, key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Tensor
) -> None:
    """As `copy_blocks`, in one launch. No destination may come twice or be a source of the same call.

    Raises ValueError for caches that no kernel takes.
    """
    check_index("block_mapping", block_mapping, torch.int64, ("n", 2))
    caches = (*key_caches, *value_caches)
    for cache in caches:
        check_index("a cache", cache, cache.dtype, ("num_blocks", "num_kv_heads", "block_size", "head_dim"))
        if cache.data_ptr() % 16 or _block_bytes(cache) % 16:
            refuse(f"a block of {_block_bytes(cache)} bytes at {cache.data_ptr():#x}: both must be multiples of 16")
    parts = max((-(-_block_bytes(cache) // PART) for cache in caches), default=0)
    if not parts or not len(block_mapping):
        return
    addresses, sizes = cache_table(caches)
    params = COPY_BLOCKS.params(
        caches=addresses.data_ptr(),
        block_bytes=sizes.data_ptr(),
        block_mapping=block_mapping.data_ptr(),
        parts=parts,
    )
    launcher.launch(copy_specialisation(), (len(block_mapping) * parts, len(caches), 1), params)


def cache_table(caches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The addresses of `caches` and the bytes of their blocks, both int64 [num_caches] and on their device.

    Made once for the same caches and kept for good: a CUDA graph may hold them.
    """
    return _table(caches[0].device, *zip(*((cache.data_ptr(), _block_bytes(cache)) for cache in caches), strict=True))


@functools.cache
def _table(device: torch.device, addresses: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return torch.tensor(addresses, device=device), torch.tensor(sizes, device=device)


def _block_bytes(cache: Tensor) -> int:
    return cache.stride(0) * cache.element_size()


def swap_blocks(sources: Sequence[Tensor], destinations: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy blocks, also between a device and pinned host memory; `block_mapping` int64 [n, 2] on the CPU.

    As `reference.swap_blocks`, neighbouring blocks in one transfer: there is no kernel, the copies are the driver's.
    Work that follows on the current stream sees the result; the host sees it after it has waited for that stream.
    Raises ValueError where the shapes disagree.
    """
    runs = _checked_runs(sources, destinations, block_mapping)
    for source, destination in zip(sources, destinations, strict=True):
        for first, target, count in runs:
            destination[target : target + count].copy_(source[first : first + count], non_blocking=True)


def merged_runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(source, destination, count) of the longest runs in which both go up by one; negative ones are left out."""
    wanted = sorted(pair for pair in pairs if min(pair) >= 0)
    start = 0
    for i in range(1, len(wanted) + 1):
        source, destination = wanted[start]
        if i == len(wanted) or wanted[i] != (source + i - start, destination + i - start):
            yield source, destination, i - start
            start = i


def _checked_runs(
    sources: Sequence[Tensor], destinations: Sequence[Tensor], block_mapping: Tensor
) -> list[tuple[int, int, int]]:
    check_index("block_mapping", block_mapping, torch.int64, ("n", 2))
    if block_mapping.device.type != "cpu":
        raise ValueError(f"block_mapping is on {block_mapping.device}, expected cpu: the host plans the transfers")
    if len(sources) != len(destinations):
        raise ValueError(f"{len(sources)} sources and {len(destinations)} destinations; their numbers must be equal")
    for source, destination in zip(sources, destinations, strict=True):
        check_index("a source", source, source.dtype, ("num_blocks", *source.shape[1:]))
        check_index("a destination", destination, source.dtype, ("num_blocks", *source.shape[1:]))
    return list(merged_runs([(source, destination) for source, destination in block_mapping.tolist()]))


define(
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping) -> ()",
    reference=reshape_and_cache,
    kernel=reshape_and_cache_kernel,
)
define(
    "rotary_reshape_and_cache(Tensor(a!) query, Tensor key, Tensor value, Tensor cos, Tensor sin, "
    "Tensor(b!) key_cache, Tensor(c!) value_cache, Tensor slot_mapping) -> ()",
    reference=reference.rotary_reshape_and_cache,
    kernel=rotary_reshape_and_cache_kernel,
)
define(
    "copy_blocks(Tensor(a!)[] key_caches, Tensor(b!)[] value_caches, Tensor block_mapping) -> ()",
    reference=copy_blocks,
    kernel=copy_blocks_kernel,
)
define(
    "swap_blocks(Tensor[] sources, Tensor(a!)[] destinations, Tensor block_mapping) -> ()",
    reference=swap_blocks,
)
