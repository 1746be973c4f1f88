"""Attention over the paged cache, for decodes and for chunks of prompts.

`sliding_window` 0, `softcap` 0.0 and `sinks` None mean off; `context_lens` count the tokens after this step's write;
`lse` is float32, base 2.
"""

from __future__ import annotations

from torch import Tensor

from . import reference
from .library import define
from .paging import RaggedIndex, ReadIndex


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


define(
    "paged_attention_decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor context_lens, float scale, int sliding_window, float softcap, Tensor? sinks, Tensor(a!) out, "
    "Tensor(b!)? lse) -> ()",
    reference=paged_attention_decode,
)
define(
    "paged_attention_prefill(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor cu_seqlens_q, Tensor context_lens, int max_seqlen_q, float scale, int sliding_window, float softcap, "
    "Tensor? sinks, Tensor(a!) out, Tensor(b!)? lse) -> ()",
    reference=paged_attention_prefill,
)
