"""How attention is laid out on a device: threads, shared memory, grids and splits, from shapes alone.

Lengths lie in device memory and are never read here, so that a plan holds for every replay of a CUDA graph; the kernels
split the actual lengths themselves (kernels/split.cuh). Sizes are in bytes, tokens or rows as named. No torch.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

GRANULE = 16  # tokens that are copied at a time, and rows of an mma tile
HEAD_DIMS = (64, 80, 96, 128, 256)
DECODE_ROWS = 16  # query rows of one key head that the decode kernel takes
LEAST_STEPS = 4  # split.cuh's kLeastChunk and the prefill kernel's kLeastTiles
ROUNDS = 4  # pieces per slot that the decode kernel considers
MOST_SPLITS = 64
RESERVED = 2048  # of shared memory per block: the driver's kilobyte, and static variables with their alignment


def tile_bytes(head_dim: int, rows: int) -> int:
    """Shared memory of `rows` rows of 16-bit numbers as kernels/tile.cuh lays them out."""
    chunks = head_dim // 8
    return rows * 16 * (chunks if chunks % 8 == 0 else chunks | 1)


@dataclass(frozen=True, slots=True)
class DecodeLayout:
    """A block of the decode kernel: its warps each have `stages` granules of keys and values in flight.

    `resident` blocks of it fit into the registers of one multiprocessor, whatever the arch.
    """

    threads: int
    stages: int
    shared_bytes: int
    resident: int


def decode_layout(head_dim: int) -> DecodeLayout:
    """Three or four stages a warp; at head_dim 256 two, and two warps, to stay within 99 KiB (sm_86, 89, 120)."""
    warps, stages = (2, 2) if head_dim > 128 else (4, 4 if head_dim == 64 else 3)
    query = tile_bytes(head_dim, DECODE_ROWS) if head_dim > 128 else 0
    shared_bytes = warps * stages * 2 * tile_bytes(head_dim, GRANULE) + query
    return DecodeLayout(warps * 32, stages, shared_bytes, 3 if head_dim in (64, 256) else 2)


@dataclass(frozen=True, slots=True)
class TileLayout:
    """A block of the prefill kernel: `rows` query rows against tiles of `keys` keys."""

    threads: int
    warp_tiles: int
    keys: int
    rows: int
    shared_bytes: int


def tile_layout(head_dim: int, most_rows: int) -> TileLayout:
    """128 rows where a sequence has more than 64; at head_dim 256 always 64, since its output fills the registers."""
    threads, keys = 128, 32 if head_dim > 128 else 64
    warp_tiles = 2 if head_dim <= 128 and most_rows > 64 else 1
    rows = threads // 32 * 16 * warp_tiles
    shared_bytes = tile_bytes(head_dim, rows) + 4 * tile_bytes(head_dim, keys)
    return TileLayout(threads, warp_tiles, keys, rows, shared_bytes)


def resident_blocks(shared_bytes: int, max_shared_bytes: int, most: int) -> int:
    """Blocks of one multiprocessor that run at once, by shared memory and at most `most`."""
    return max(1, min(most, (max_shared_bytes + 1024) // (shared_bytes + RESERVED)))


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Grid of the decode kernel and room for parts: `blocks` stay and take pieces; `parts` bounds the pieces."""

    layout: DecodeLayout
    blocks: int
    parts: int


@functools.lru_cache(maxsize=256)
def plan_decode(
    head_dim: int, num_seqs: int, kv_heads: int, most_keys: int, multiprocessors: int, max_shared_bytes: int
) -> DecodePlan:
    """`most_keys` is what a row of the block table can name: a bound of the context, not the context."""
    layout = decode_layout(head_dim)
    slots = multiprocessors * resident_blocks(layout.shared_bytes, max_shared_bytes, layout.resident)
    steps = math.ceil(most_keys / (GRANULE * layout.threads // 32)) + 1  # a window may begin amid a step
    most_pieces = num_seqs * kv_heads * max(1, math.ceil(steps / LEAST_STEPS))
    blocks = max(1, min(slots, most_pieces))
    # Each round of pieces fills the blocks once, and every sequence rounds its number of pieces up.
    return DecodePlan(layout, blocks, min(most_pieces, blocks * ROUNDS + num_seqs * kv_heads))


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Grid of the prefill kernel: (row_tiles, kv_heads, splits). `row_tiles` is an upper bound."""

    layout: TileLayout
    row_tiles: int
    splits: int


@functools.lru_cache(maxsize=256)
def plan_tiles(
    head_dim: int,
    num_seqs: int,
    num_rows: int,
    most_rows: int,
    kv_heads: int,
    most_keys: int,
    multiprocessors: int,
    max_shared_bytes: int,
) -> TilePlan:
    """`num_rows` query rows (tokens x heads per key head) in all, at most `most_rows` of one sequence.

    Keys are split only where the tiles of rows leave more than half of the device idle.
    """
    layout = tile_layout(head_dim, most_rows)
    row_tiles = min(num_rows // layout.rows + num_seqs, num_seqs * math.ceil(most_rows / layout.rows))
    slots = multiprocessors * resident_blocks(layout.shared_bytes, max_shared_bytes, 2)
    most_splits = min(MOST_SPLITS, math.ceil(most_keys / layout.keys / LEAST_STEPS))
    return TilePlan(layout, row_tiles, max(1, min(most_splits, slots // max(1, row_tiles * kv_heads))))
