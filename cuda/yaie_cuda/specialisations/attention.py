"""Attention kernels: decode, prefill and the merge of two results, for all types, head sizes and block sizes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

from yaie_cuda.kernel import Kernel, Specialisation
from yaie_cuda.planning import HEAD_DIMS, decode_layout, tile_layout

SCALARS = ("bfloat16", "float16")
FEW_ROWS, MANY_ROWS = 64, 128  # query rows of a sequence on either side of the change of tile
BLOCK_SIZES = (16, 32)  # compiled ahead; others that are a multiple of 16 when they are met
_COMMON = (("num_kv_heads", "i"), ("group", "i"), ("max_blocks", "i"), ("window", "i"))
DECODE = Kernel(
    "paged_attention_decode",
    (
        *((name, "p") for name in ("query", "key_cache", "value_cache", "block_tables", "context_lens", "first_keys")),
        *((name, "p") for name in ("sinks", "out", "lse", "part_outs", "part_lses", "counters")),
        *((name, "q") for name in ("query_seq_stride", "query_token_stride", "block_stride", "table_stride")),
        *((name, "i") for name in ("num_seqs", "q_len")),
        *_COMMON,
        *((name, "i") for name in ("rounds", "wide_out", "wide_sinks", "padding")),
        *((name, "f") for name in ("scale", "cap_scale")),
    ),
)
PREFILL = Kernel(
    "paged_attention_prefill",
    (
        *((name, "p") for name in ("query", "key_cache", "value_cache", "block_tables", "starts", "context_lens")),
        *((name, "p") for name in ("sinks", "out", "lse", "part_outs", "part_lses", "counters")),
        *((name, "q") for name in ("query_stride", "block_stride", "table_stride")),
        *((name, "i") for name in ("num_seqs", "q_len")),
        *_COMMON,
        *((name, "i") for name in ("shared", "wide_out", "wide_sinks", "padding")),
        *((name, "f") for name in ("scale", "cap_scale")),
    ),
)
MERGE = Kernel(
    "merge_attention_states",
    (*((name, "p") for name in ("out_a", "out_b", "lse_a", "lse_b", "out", "lse")), ("rows", "q")),
)


@functools.cache
def decode_specialisation(scalar: str, head_dim: int, block_size: int) -> Specialisation:
    """The decode kernel for up to 16 query rows of each key head."""
    layout = decode_layout(head_dim)
    return DECODE.specialise(
        layout.threads,
        layout.shared_bytes,
        SCALAR=scalar,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        STAGES=layout.stages,
    )


@functools.cache
def tile_specialisation(scalar: str, head_dim: int, block_size: int, most_rows: int) -> Specialisation:
    """The prefill kernel for sequences of at most `most_rows` query rows of each key head."""
    layout = tile_layout(head_dim, most_rows)
    return PREFILL.specialise(
        layout.threads,
        layout.shared_bytes,
        SCALAR=scalar,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        WARP_TILES=layout.warp_tiles,
        KEYS=layout.keys,
    )


@functools.cache
def merge_specialisation(scalar: str, result: str, head_dim: int) -> Specialisation:
    """The merge of two results of type `scalar` into one of type `result`."""
    return MERGE.specialise(256, 0, SCALAR=scalar, RESULT=result, HEAD_DIM=head_dim)


KERNELS = (DECODE, PREFILL, MERGE)


def ci() -> Iterator[Specialisation]:
    """Every head_dim once, with both types and both block sizes among them."""
    for scalar, head_dim, block_size in (
        ("bfloat16", 64, 16),
        ("bfloat16", 80, 16),
        ("float16", 96, 32),
        ("bfloat16", 128, 16),
        ("bfloat16", 256, 16),
    ):
        yield decode_specialisation(scalar, head_dim, block_size)
        yield tile_specialisation(scalar, head_dim, block_size, MANY_ROWS)
    yield tile_specialisation("bfloat16", 128, 16, FEW_ROWS)
    yield merge_specialisation("bfloat16", "bfloat16", 128)
    yield merge_specialisation("float32", "bfloat16", 128)


def everything() -> Iterator[Specialisation]:
    """What the ops ask for with the usual block sizes."""
    for scalar, head_dim, block_size in product(SCALARS, HEAD_DIMS, BLOCK_SIZES):
        yield decode_specialisation(scalar, head_dim, block_size)
        yield tile_specialisation(scalar, head_dim, block_size, FEW_ROWS)
        yield tile_specialisation(scalar, head_dim, block_size, MANY_ROWS)
    for scalar, head_dim in product(SCALARS, HEAD_DIMS):
        yield merge_specialisation(scalar, scalar, head_dim)
        yield merge_specialisation("float32", scalar, head_dim)
        yield merge_specialisation("float32", "float32", head_dim)
