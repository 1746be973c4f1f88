"""Attention over the paged cache, for decodes and for chunks of prompts, and the merge of two results.

`sliding_window` 0, `softcap` 0.0 and `sinks` None mean off; `context_lens` count the tokens after this step's write;
`lse` is float32, base 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import reference
from .checks import UnservedError, check_index, check_shape, not_contiguous, refuse
from .kernel import Launcher
from .library import define
from .paged_launch import SCALARS, Pages, Scoring, decode_launches, merge_launches, tile_launches
from .paging import RaggedIndex, ReadIndex
from .planning import DECODE_ROWS, GRANULE, HEAD_DIMS
from .prepared import Launch, prepared
from .reference.attention import merge_states


def unsupported_reason(dtype: torch.dtype, key_dim: int, value_dim: int, block_size: int) -> str:
    """Why no kernel attends over such a cache; "" when one does."""
    if dtype not in (torch.bfloat16, torch.float16):
        return f"attention kernels take bfloat16 and float16, not {str(dtype).removeprefix('torch.')}"
    if key_dim != value_dim:
        return f"attention kernels take keys and values of one size, not {key_dim} and {value_dim}"
    if key_dim not in HEAD_DIMS:
        return f"head_dim {key_dim} has no attention kernel; there are {', '.join(map(str, HEAD_DIMS))}"
    if block_size % GRANULE:
        return f"block_size {block_size} is not a multiple of {GRANULE}"
    return ""


# ---- decode


def paged_attention_decode(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    sliding_window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> None:
    """Attention of the last q_len tokens of each sequence; query [num_seqs, q_len, num_heads, head_dim]."""
    index = ReadIndex(block_tables, context_lens, query.shape[1], key_cache.shape[2], sliding_window)
    out.copy_(reference.attend(query, key_cache, value_cache, index, scale, softcap, sinks, lse))


def plan_paged_decode(
    launcher: Launcher,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    sliding_window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> tuple[Launch, ...]:
    """As the reference, in one launch. Raises ValueError for shapes that do not fit and for what no kernel takes.

    Up to 16 query rows of each key head (tokens x heads) go to the decode kernel, more to the one for chunks.
    """
    check_shape("query", query, ("num_seqs", "q_len", "num_heads", "head_dim"))
    num_seqs, q_len, num_heads, _ = query.shape
    _check(query, key_cache, value_cache, block_tables, context_lens, num_seqs, sliding_window, softcap, sinks)
    refuse(unserved(query, key_cache, value_cache, block_tables, context_lens, scale, sinks, out, lse))
    _check_results(query, out, lse)
    pages = Pages(key_cache, block_tables)
    scoring = Scoring(scale, sliding_window, softcap, sinks)
    if q_len * num_heads // key_cache.shape[1] <= DECODE_ROWS:
        return decode_launches(launcher, query, pages, scoring)
    rows = rows_of(query)
    if rows is None:
        raise UnservedError(f"query has strides {list(query.stride())}; its tokens must lie at one distance")
    return tile_launches(launcher, rows, pages, scoring, num_seqs=num_seqs, most_tokens=q_len, q_len=q_len)


paged_attention_decode_kernel = prepared(plan_paged_decode)


# ---- chunks of prompts


def paged_attention_prefill(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    cu_seqlens_q: Tensor,
    context_lens: Tensor,
    max_seqlen_q: int,
    scale: float,
    sliding_window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> None:
    """Attention of chunks laid end to end; query [num_tokens, num_heads, head_dim]."""
    starts, lens = cu_seqlens_q.tolist(), context_lens.tolist()
    index = RaggedIndex(block_tables, starts, lens, key_cache.shape[2], sliding_window)
    out.copy_(reference.attend_ragged(query, key_cache, value_cache, index, scale, softcap, sinks, lse))


@prepared
def paged_attention_prefill_kernel(
    launcher: Launcher,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    cu_seqlens_q: Tensor,
    context_lens: Tensor,
    max_seqlen_q: int,
    scale: float,
    sliding_window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> tuple[Launch, ...]:
    """As the reference, in one launch. Raises ValueError for shapes that do not fit and for what no kernel takes."""
    check_shape("query", query, ("num_tokens", "num_heads", "head_dim"))
    num_seqs = cu_seqlens_q.shape[0] - 1
    _check(query, key_cache, value_cache, block_tables, context_lens, num_seqs, sliding_window, softcap, sinks)
    check_index("cu_seqlens_q", cu_seqlens_q, torch.int32, (num_seqs + 1,))
    refuse(unserved(query, key_cache, value_cache, block_tables, context_lens, scale, sinks, out, lse))
    _check_results(query, out, lse)
    if max_seqlen_q < 1 and query.shape[0]:
        raise ValueError(f"max_seqlen_q is {max_seqlen_q}, with {query.shape[0]} tokens")
    return tile_launches(
        launcher,
        query,
        Pages(key_cache, block_tables),
        Scoring(scale, sliding_window, softcap, sinks),
        num_seqs=num_seqs,
        most_tokens=max_seqlen_q,
        pointers={"starts": "cu_seqlens_q"},
    )


# ---- merging


def merge_attention_states(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
) -> None:
    """Attention over two sets of keys from the results over each: out [.., head_dim], lse [..]."""
    merged, total = merge_states(out_a, lse_a, out_b, lse_b)
    out.copy_(merged)
    lse.copy_(total)


def _merge_problem(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor) -> str:
    """Why no kernel merges these; "" when one does."""
    if out.shape[-1] not in HEAD_DIMS:
        return f"head_dim {out.shape[-1]} has no merge kernel; there are {', '.join(map(str, HEAD_DIMS))}"
    for tensor in (out_a, out_b, out):
        if tensor.dtype not in SCALARS:
            return f"merge kernels take {', '.join(SCALARS.values())}, not {str(tensor.dtype).removeprefix('torch.')}"
    if out_a.dtype != out_b.dtype or out.dtype not in (out_a.dtype, *(SCALARS if out_a.dtype == torch.float32 else ())):
        return f"no kernel merges {out_a.dtype} and {out_b.dtype} to {out.dtype}"
    if any(tensor.data_ptr() % 16 for tensor in (out_a, out_b, out)):
        return "parts and results must begin at multiples of 16 bytes"
    return not_contiguous(out_a=out_a, lse_a=lse_a, out_b=out_b, lse_b=lse_b, out=out, lse=lse) or _clash(
        (out_a, out_b), (lse_a, lse_b), out, lse
    )


def _clash(outs: tuple[Tensor, Tensor], lses: tuple[Tensor, Tensor], out: Tensor, lse: Tensor) -> str:
    """Why results may not lie where they do; "" when they may.

    A thread writes its part of `out` over what it read itself, but other threads still read an lse.
    """
    for part in outs:
        if _overlap(out, part) and (out.data_ptr(), out.dtype) != (part.data_ptr(), part.dtype):
            return "out lies over a part of out_a or out_b; it may be all of one, with the same type"
    if any(_overlap(lse, tensor) for tensor in (*lses, *outs)) or any(_overlap(out, tensor) for tensor in lses):
        return "lse lies over what is merged: the kernel reads that while it writes"
    return ""


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two contiguous tensors have a byte in common."""
    a, b = one.data_ptr(), other.data_ptr()
    return a < b + other.numel() * other.element_size() and b < a + one.numel() * one.element_size()


@prepared
def _merge(
    launcher: Launcher, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
) -> tuple[Launch, ...]:
    """As the reference, in one launch. Raises ValueError for shapes that do not fit and for what no kernel takes."""
    for name, tensor in (("out_a", out_a), ("out_b", out_b), ("out", out)):
        check_index(name, tensor, tensor.dtype, out.shape)
    for name, tensor in (("lse_a", lse_a), ("lse_b", lse_b), ("lse", lse)):
        check_index(name, tensor, torch.float32, out.shape[:-1])
    refuse(_merge_problem(out_a, lse_a, out_b, lse_b, out, lse))
    return merge_launches(out_a.dtype, out)


def merge_attention_states_kernel(
    launcher: Launcher, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
) -> None:
    """As the reference, in one launch; `out` may be out_a or out_b. Raises ValueError for what does not fit."""
    refuse(_clash((out_a, out_b), (lse_a, lse_b), out, lse))  # each time: it depends on addresses
    _merge(launcher, out_a, lse_a, out_b, lse_b, out, lse)


# ---- checks


def rows_of(query: Tensor) -> Tensor | None:
    """query [num_seqs, q_len, num_heads, head_dim] as [num_seqs * q_len, num_heads, head_dim], without a copy.

    None where its tokens do not lie at one distance.
    """
    num_seqs, q_len = query.shape[:2]
    if q_len > 1 and num_seqs > 1 and query.stride(0) != q_len * query.stride(1):
        return None
    apart = query.stride(0 if q_len == 1 else 1)
    return query.as_strided((num_seqs * q_len, *query.shape[2:]), (apart, *query.stride()[2:]))


def _apart(tensor: Tensor, dims: int) -> list[int]:
    """The strides of the first `dims` dimensions that have more than one place."""
    return [tensor.stride(i) for i in range(dims) if tensor.shape[i] > 1]


def unserved(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
) -> str:
    """Why no kernel takes these tensors; "" when one does."""
    reason = unsupported_reason(query.dtype, key_cache.shape[3], value_cache.shape[3], key_cache.shape[2])
    if reason:
        return reason
    if not scale > 0:
        return f"scale is {scale}; kernels take what is above 0"
    for name, tensor in (("key_cache", key_cache), ("value_cache", value_cache), ("out", out)):
        if tensor.dtype != query.dtype:
            return f"{name} is {tensor.dtype} and query is {query.dtype}"
    if sinks is not None and sinks.dtype not in (query.dtype, torch.float32):
        return f"sinks are {sinks.dtype}; kernels take float32 and the query's type"
    if _apart(key_cache, 1) != _apart(value_cache, 1) or not_contiguous(key=key_cache[:1], value=value_cache[:1]):
        return "keys and values of a block must each be one run in memory, with the same strides in both caches"
    leading = query.dim() - 2
    if not query[(slice(1),) * leading].is_contiguous():
        return f"the heads of a query must be one run in memory, strides are {list(query.stride())}"
    apart = (*_apart(key_cache, 1), *_apart(query, leading))
    if any(stride % 8 for stride in apart) or any(t.data_ptr() % 16 for t in (query, key_cache, value_cache, out)):
        return "queries, blocks and results must begin at multiples of 16 bytes"
    return not_contiguous(
        **{"a row of block_tables": block_tables[:1]}, context_lens=context_lens, sinks=sinks, out=out, lse=lse
    )


def _check(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    num_seqs: int,
    sliding_window: int,
    softcap: float,
    sinks: Tensor | None,
) -> None:
    """Raise ValueError unless the arguments fit each other."""
    num_heads, head_dim = query.shape[-2:]
    check_shape("key_cache", key_cache, ("num_blocks", "num_kv_heads", "block_size", head_dim))
    check_shape("value_cache", value_cache, (*key_cache.shape[:3], "head_dim"))
    check_shape("block_tables", block_tables, (num_seqs, "max_blocks"))
    check_index("context_lens", context_lens, torch.int32, (num_seqs,))
    if block_tables.dtype != torch.int32:
        raise ValueError(f"block_tables are {block_tables.dtype}, expected int32")
    if num_heads % key_cache.shape[1]:
        raise ValueError(f"{num_heads} query heads do not share {key_cache.shape[1]} key heads evenly")
    if sliding_window < 0 or softcap < 0:
        raise ValueError(f"sliding_window {sliding_window} and softcap {softcap} must be 0 (off) or more")
    if sinks is not None:
        check_index("sinks", sinks, sinks.dtype, (num_heads,))


def _check_results(query: Tensor, out: Tensor, lse: Tensor | None) -> None:
    """Raise ValueError unless `out` and `lse` can take the results of `query`."""
    check_index("out", out, out.dtype, query.shape)
    if lse is not None:
        check_index("lse", lse, torch.float32, query.shape[:-1])


define(
    "paged_attention_decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor context_lens, float scale, int sliding_window, float softcap, Tensor? sinks, Tensor(a!) out, "
    "Tensor(b!)? lse) -> ()",
    reference=paged_attention_decode,
    kernel=paged_attention_decode_kernel,
)
define(
    "paged_attention_prefill(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor cu_seqlens_q, Tensor context_lens, int max_seqlen_q, float scale, int sliding_window, float softcap, "
    "Tensor? sinks, Tensor(a!) out, Tensor(b!)? lse) -> ()",
    reference=paged_attention_prefill,
    kernel=paged_attention_prefill_kernel,
)
define(
    "merge_attention_states(Tensor out_a, Tensor lse_a, Tensor out_b, Tensor lse_b, Tensor(a!) out, Tensor(b!) lse) "
    "-> ()",
    reference=merge_attention_states,
    kernel=merge_attention_states_kernel,
)
