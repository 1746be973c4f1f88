"""Launches of the paged attention kernels: specialisation, plan, workspace and parameters.

Arguments are checked by the ops that call these. Nothing here reads a tensor's content.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from . import sources
from .kernel import Launcher, Specialisation
from .planning import DECODE_ROWS, ROUNDS, plan_decode, plan_tiles
from .specialisations.attention import (
    DECODE,
    MERGE,
    PREFILL,
    decode_specialisation,
    merge_specialisation,
    tile_specialisation,
)

SCALARS = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
MOST_WINDOW = 1 << 30  # longer than any context; the kernels subtract it from int32 positions


@dataclass(frozen=True, slots=True)
class Scoring:
    """What happens to a score: `scale` > 0, `window` keys (0: all), `softcap` (0: none), `sinks` [num_heads]."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None

    def fields(self) -> dict[str, object]:
        """The parameters of both kernels."""
        scale = self.softcap or self.scale
        sinks = self.sinks
        return {
            "scale": scale * math.log2(math.e),
            "cap_scale": self.scale / self.softcap if self.softcap else 0.0,
            "window": min(self.window, MOST_WINDOW),
            "sinks": None if sinks is None else sinks.data_ptr(),
            "wide_sinks": sinks is not None and sinks.dtype == torch.float32,
        }


@dataclass(frozen=True, slots=True)
class Pages:
    """A paged cache with the tables over it."""

    keys: Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    values: Tensor  # the same shape and strides
    block_tables: Tensor  # [num_seqs, max_blocks]
    context_lens: Tensor  # [num_seqs]

    @property
    def most_keys(self) -> int:
        """Tokens that a row of the tables can name."""
        return self.block_tables.shape[1] * self.keys.shape[2]

    def fields(self) -> dict[str, object]:
        """The parameters of both kernels."""
        return {
            "key_cache": self.keys.data_ptr(),
            "value_cache": self.values.data_ptr(),
            "block_tables": self.block_tables.data_ptr(),
            "context_lens": self.context_lens.data_ptr(),
            "num_kv_heads": self.keys.shape[1],
            "max_blocks": self.block_tables.shape[1],
            "block_stride": self.keys.stride(0),
            "table_stride": self.block_tables.stride(0),
        }


def _parts(launcher: Launcher, rows: int, head_dim: int, counters: int, device: torch.device) -> dict[str, object]:
    """Room for `rows` part results and `counters` zeros, which the kernels leave as zeros; nothing for no rows."""
    if not rows:
        return {}
    outs = launcher.workspace("attention_parts", (rows * (head_dim + 1),), torch.float32, device).data_ptr()
    return {
        "part_outs": outs,
        "part_lses": outs + 4 * rows * head_dim,
        "counters": _zero_counters(launcher, counters, device).data_ptr(),
    }


_zeroed: WeakKeyDictionary[Launcher, dict[torch.device, tuple[int, int, int]]] = WeakKeyDictionary()


def _zero_counters(launcher: Launcher, count: int, device: torch.device) -> Tensor:
    """Counters that are zero between launches: cleared here first, then left so by the kernels.

    A kernel that died, or a replaced source, may have left them otherwise: they are cleared anew after either.
    """
    counters = launcher.workspace("attention_counters", (count,), torch.int32, device)
    seen = _zeroed.setdefault(launcher, {})
    storage = counters.untyped_storage()
    state = (storage.data_ptr(), storage.nbytes(), sources.generation)
    if seen.get(device) != state:
        torch.empty(0, dtype=torch.int32, device=device).set_(storage).zero_()
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):  # else done at each replay only
            seen[device] = state
    return counters


def _launch(
    launcher: Launcher, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure
) -> None:
    """Launch a kernel that counts. When that fails, the counters are not taken for zero any more."""
    try:
        launcher.launch(specialisation, grid, params)
    except BaseException:
        _zeroed.pop(launcher, None)
        raise


def launch_decode(
    launcher: Launcher,
    query: Tensor,
    pages: Pages,
    scoring: Scoring,
    out: Tensor,
    lse: Tensor | None,
    first_keys: Tensor | None = None,
) -> None:
    """query [num_seqs, q_len, num_heads, head_dim], q_len x heads per key head <= 16; out the same, or in float.

    `first_keys` int32 [num_seqs]: keys before these are left out.
    """
    num_seqs, q_len, num_heads, head_dim = query.shape
    kv_heads = pages.keys.shape[1]
    if num_seqs == 0:
        return
    plan = plan_decode(
        head_dim, num_seqs, kv_heads, pages.most_keys, launcher.multiprocessors, launcher.max_shared_bytes
    )
    parts = plan.parts if plan.parts > num_seqs * kv_heads else 0
    params = DECODE.params(
        query=query.data_ptr(),
        first_keys=None if first_keys is None else first_keys.data_ptr(),
        out=out.data_ptr(),
        lse=None if lse is None else lse.data_ptr(),
        query_seq_stride=query.stride(0),
        query_token_stride=query.stride(1),
        num_seqs=num_seqs,
        q_len=q_len,
        group=num_heads // kv_heads,
        rounds=ROUNDS,
        wide_out=out.dtype == torch.float32,
        **pages.fields(),
        **scoring.fields(),
        **_parts(launcher, parts * DECODE_ROWS, head_dim, num_seqs * kv_heads, query.device),
    )
    specialisation = decode_specialisation(SCALARS[query.dtype], head_dim, pages.keys.shape[2])
    _launch(launcher, specialisation, (plan.blocks, 1, 1), params)


def launch_tiles(
    launcher: Launcher,
    query: Tensor,
    pages: Pages,
    scoring: Scoring,
    out: Tensor,
    lse: Tensor | None,
    *,
    num_seqs: int,
    most_tokens: int,
    starts: Tensor | None = None,
    q_len: int = 1,
    shared: bool = False,
) -> None:
    """query and out [num_tokens, num_heads, head_dim]: sequences of at most `most_tokens` tokens, end to end.

    `starts` int32 [num_seqs + 1] times `q_len` is each one's first token; None: all have `q_len` tokens. `shared`: one
    "sequence" is a group of sequences, numbers starts[i] and on, whose rows see the whole context of the first one.
    """
    num_tokens, num_heads, head_dim = query.shape
    kv_heads = pages.keys.shape[1]
    group = num_heads // kv_heads
    if num_tokens == 0 or num_seqs == 0:
        return
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
    params = PREFILL.params(
        query=query.data_ptr(),
        starts=None if starts is None else starts.data_ptr(),
        out=out.data_ptr(),
        lse=None if lse is None else lse.data_ptr(),
        query_stride=query.stride(0),
        num_seqs=num_seqs,
        q_len=q_len,
        group=group,
        shared=shared,
        wide_out=out.dtype == torch.float32,
        **pages.fields(),
        **scoring.fields(),
        **_parts(launcher, parts * plan.layout.rows, head_dim, tiles, query.device),
    )
    specialisation = tile_specialisation(SCALARS[query.dtype], head_dim, pages.keys.shape[2], most_tokens * group)
    _launch(launcher, specialisation, (plan.row_tiles, kv_heads, plan.splits), params)


def launch_merge(
    launcher: Launcher, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
) -> None:
    """out_a, out_b, out [..., head_dim]; lses [...]; all contiguous."""
    head_dim = out.shape[-1]
    specialisation = merge_specialisation(SCALARS[out_a.dtype], SCALARS[out.dtype], head_dim)
    params = MERGE.params(
        out_a=out_a.data_ptr(),
        out_b=out_b.data_ptr(),
        lse_a=lse_a.data_ptr(),
        lse_b=lse_b.data_ptr(),
        out=out.data_ptr(),
        lse=lse.data_ptr(),
        rows=lse.numel(),
    )
    blocks = math.ceil(out.numel() / 8 / specialisation.threads)
    if blocks:
        launcher.launch(specialisation, (blocks, 1, 1), params)
