"""The torch ops of namespace `yaie`: `torch.ops.yaie.<name>` after `import yaie_cuda.ops`.

Signatures are fixed. Every op has the torch reference on CPU and CUDA and a fake version for tracing.
`sliding_window` 0, `softcap` 0.0 and `sinks` None mean off; `context_lens` count the tokens after this step's write;
`lse` is float32, base 2; a slot or mapping of -1 writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import reference
from .paging import RaggedIndex, ReadIndex, WriteIndex

LIBRARY = torch.library.Library("yaie", "DEF")
DEVICES = ("CPU", "CUDA")


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Store key and value [num_tokens, num_kv_heads, head_dim] at `slot_mapping` int64 [num_tokens]."""
    index = WriteIndex(slot_mapping, key_cache.shape[2])
    reference.write_cache(key, value, key_cache, value_cache, index)


def copy_blocks(key_caches: Sequence[Tensor], value_caches: Sequence[Tensor], block_mapping: Tensor) -> None:
    """Copy whole blocks, (source, destination) per row of `block_mapping` int64 [n, 2], in all layers."""
    reference.copy_blocks(key_caches, value_caches, block_mapping)


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


def _writes_only(*_: Any) -> None:
    """Fake version of ops that only write to their arguments."""


def _define(signature: str, implementation: Callable[..., None]) -> None:
    LIBRARY.define(signature)
    name = signature.partition("(")[0]
    for device in DEVICES:
        LIBRARY.impl(name, implementation, device)
    torch.library.register_fake(f"yaie::{name}", _writes_only, lib=LIBRARY)


_define(
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping) -> ()",
    reshape_and_cache,
)
_define(
    "copy_blocks(Tensor(a!)[] key_caches, Tensor(b!)[] value_caches, Tensor block_mapping) -> ()",
    copy_blocks,
)
_define(
    "paged_attention_decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor context_lens, float scale, int sliding_window, float softcap, Tensor? sinks, Tensor(a!) out, "
    "Tensor(b!)? lse) -> ()",
    paged_attention_decode,
)
_define(
    "paged_attention_prefill(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, "
    "Tensor cu_seqlens_q, Tensor context_lens, int max_seqlen_q, float scale, int sliding_window, float softcap, "
    "Tensor? sinks, Tensor(a!) out, Tensor(b!)? lse) -> ()",
    paged_attention_prefill,
)
