"""Launches of the paged attention kernels: specialisation, plan, workspace and parameters.

Arguments are checked by the ops that call these. Nothing here reads a tensor's content or address. Pointers are the
arguments of the op with the names of a kernel's fields; `pointers` names others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from .kernel import Launcher
from .planning import DECODE_ROWS, ROUNDS, plan_decode, plan_tiles
from .prepared import Launch, Room
from .specialisations.attention import decode_specialisation, merge_specialisation, tile_specialisation

SCALARS = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
MOST_WINDOW = 1 << 30  # longer than any context; the kernels subtract it from int32 positions
Pointers = Mapping[str, str | Room | None]
NAMED_ALIKE: Pointers = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scoring:
    """What happens to a score: `scale` > 0, `window` keys (0: all), `softcap` (0: none), `sinks` [num_heads]."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None

    def fields(self) -> dict[str, object]:
        """The numbers for both kernels."""
        scale = self.softcap or self.scale
        sinks = self.sinks
        return {
            "scale": scale * math.log2(math.e),
            "cap_scale": self.scale / self.softcap if self.softcap else 0.0,
            "window": min(self.window, MOST_WINDOW),
            "wide_sinks": sinks is not None and sinks.dtype == torch.float32,
        }


@dataclass(frozen=True, slots=True)
class Pages:
    """A paged cache, by its keys, with the table over it."""

    keys: Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    block_tables: Tensor  # [num_seqs, max_blocks]

    @property
    def most_keys(self) -> int:
        """Tokens that a row of the tables can name."""
        return self.block_tables.shape[1] * self.keys.shape[2]

    def fields(self) -> dict[str, object]:
        """The numbers for both kernels."""
        return {
            "num_kv_heads": self.keys.shape[1],
            "max_blocks": self.block_tables.shape[1],
            "block_stride": self.keys.stride(0),
            "table_stride": self.block_tables.stride(0),
        }


def _parts(rows: int, head_dim: int, counters: int) -> dict[str, Room]:
    """Room for `rows` part results and `counters` zeros, which the kernels leave as zeros; nothing for no rows."""
    if not rows:
        return {}
    return {
        "part_outs": Room("attention_parts", (rows * head_dim,), torch.float32),
        "part_lses": Room("attention_part_lses", (rows,), torch.float32),
        "counters": Room("attention_counters", (counters,), torch.int32, zero=True),
    }


def decode_launches(
    launcher: Launcher,
    query: Tensor,
    pages: Pages,
    scoring: Scoring,
    *,
    wide_out: bool = False,
    pointers: Pointers = NAMED_ALIKE,
) -> tuple[Launch, ...]:
    """query [num_seqs, q_len, num_heads, head_dim], q_len x heads per key head <= 16; out the same, or in float.

    Keys before `first_keys` int32 [num_seqs] are left out, if `pointers` has them.
    """
    num_seqs, q_len, num_heads, head_dim = query.shape
    kv_heads = pages.keys.shape[1]
    if num_seqs == 0:
        return ()
    plan = plan_decode(
        head_dim, num_seqs, kv_heads, pages.most_keys, launcher.multiprocessors, launcher.max_shared_bytes
    )
    parts = plan.parts if plan.parts > num_seqs * kv_heads else 0
    numbers = {
        "query_seq_stride": query.stride(0),
        "query_token_stride": query.stride(1),
        "num_seqs": num_seqs,
        "q_len": q_len,
        "group": num_heads // kv_heads,
        "rounds": ROUNDS,
        "wide_out": wide_out,
        **pages.fields(),
        **scoring.fields(),
    }
    rooms = _parts(parts * DECODE_ROWS, head_dim, num_seqs * kv_heads)
    specialisation = decode_specialisation(SCALARS[query.dtype], head_dim, pages.keys.shape[2])
    return (Launch(specialisation, (plan.blocks, 1, 1), numbers, {**pointers, **rooms}),)


def tile_launches(
    launcher: Launcher,
    query: Tensor,
    pages: Pages,
    scoring: Scoring,
    *,
    num_seqs: int,
    most_tokens: int,
    q_len: int = 1,
    shared: bool = False,
    wide_out: bool = False,
    pointers: Pointers = NAMED_ALIKE,
) -> tuple[Launch, ...]:
    """query and out [num_tokens, num_heads, head_dim]: sequences of at most `most_tokens` tokens, end to end.

    `starts` int32 [num_seqs + 1] times `q_len` is each one's first token; if `pointers` lacks it, all have `q_len`
    tokens. `shared`: one "sequence" is a group of sequences, numbers starts[i] and on, whose rows see the whole context
    of the first one.
    """
    num_tokens, num_heads, head_dim = query.shape
    kv_heads = pages.keys.shape[1]
    group = num_heads // kv_heads
    if num_tokens == 0 or num_seqs == 0:
        return ()
    plan = plan_tiles(
        head_dim,
        num_seqs,
        num_tokens * group,
        most_tokens * group,
        kv_heads,
        pages.most_keys,
        launcher.multiprocessors,
        launcher.max_shared_bytes,
    )
    tiles = plan.row_tiles * kv_heads
    parts = tiles * plan.splits if plan.splits > 1 else 0
    numbers = {
        "query_stride": query.stride(0),
        "num_seqs": num_seqs,
        "q_len": q_len,
        "group": group,
        "shared": shared,
        "wide_out": wide_out,
        **pages.fields(),
        **scoring.fields(),
    }
    rooms = _parts(parts * plan.layout.rows, head_dim, tiles)
    specialisation = tile_specialisation(SCALARS[query.dtype], head_dim, pages.keys.shape[2], most_tokens * group)
    return (Launch(specialisation, (plan.row_tiles, kv_heads, plan.splits), numbers, {**pointers, **rooms}),)


def merge_launches(scalar: torch.dtype, out: Tensor, pointers: Pointers = NAMED_ALIKE) -> tuple[Launch, ...]:
    """Results of type `scalar` merged into out [..., head_dim]; all contiguous."""
    head_dim = out.shape[-1]
    specialisation = merge_specialisation(SCALARS[scalar], SCALARS[out.dtype], head_dim)
    blocks = math.ceil(out.numel() / 8 / specialisation.threads)
    if not blocks:
        return ()
    return (Launch(specialisation, (blocks, 1, 1), {"rows": out.numel() // head_dim}, pointers),)
