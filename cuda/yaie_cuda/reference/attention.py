"""Attention over the paged cache, in torch; sums are taken in float32 or better.

Caches are per layer, K and V apart: [num_blocks, num_kv_heads, block_size, head_dim]; V may have another head_dim.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie_cuda.paging import CacheRows, PrefixIndex, RaggedIndex, ReadIndex, Scratch


def attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    index: ReadIndex,
    scale: float,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    lse: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Attention of query [num_seqs, q_len, num_heads, head_dim] over the keys of `index`.

    Keys and values are gathered once and never repeated for the query heads that share them. Returns [num_seqs, q_len,
    num_heads, value head_dim] in the query's dtype; rows that see nothing give 0. `lse` float32 [num_seqs, q_len,
    num_heads] receives log2 of the softmax denominator (-inf for nothing), sinks included.
    """
    scratch = scratch or Scratch()
    plainly = softcap or sinks is not None or lse is not None or index.some_row_sees_nothing
    if index.q_len == 1 and not plainly:
        return attend_rows(query[:, 0], key_cache, value_cache, index, scale, scratch=scratch).unsqueeze(1)
    keys = gather(key_cache, index, scratch, "keys")
    values = gather(value_cache, index, scratch, "values")
    if plainly:
        return attend_plainly(query, keys, values, index, scale, softcap, sinks, lse).to(query.dtype)
    bias = index.bias(query.dtype)
    shared = keys.shape[1] != query.shape[2]
    out = F.scaled_dot_product_attention(query.transpose(1, 2), keys, values, bias, scale=scale, enable_gqa=shared)
    return out.transpose(1, 2)


def attend_rows(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    index: ReadIndex,
    scale: float,
    prefix: PrefixIndex | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Attention of one query row per sequence, [num_seqs, num_heads, head_dim], over the keys of `index`.

    A `prefix` below them, which all have in common, is gathered and multiplied once. Every row must see a key. Returns
    [num_seqs, num_heads, value head_dim]. The query heads of one key head become rows of one product: for so few rows
    that is several times as fast as the library's attention. Scores are rounded to the query's dtype, as query and key
    were before, but for float16, whose range a product that is not scaled yet may leave; the softmax is float32 or
    better.
    """
    scratch = scratch or Scratch()
    num_seqs, num_heads, head_dim = query.shape
    kv_heads, group = key_cache.shape[1], num_heads // key_cache.shape[1]
    work = torch.promote_types(query.dtype, torch.float32)
    folded = _ranged(query.reshape(num_seqs, kv_heads, group, head_dim))
    keys = _ranged(gather(key_cache, index, scratch, "keys"))
    scores = torch.matmul(folded, keys.transpose(2, 3)).to(work).mul_(scale)
    bias = index.bias(work)
    if bias is not None:
        scores += bias
    if prefix is None:
        weights = torch.softmax(scores, -1).to(query.dtype)
        out = torch.matmul(weights, gather(value_cache, index, scratch, "values"))
        return out.view(num_seqs, num_heads, value_cache.shape[3])
    together = folded.transpose(0, 1).reshape(kv_heads, num_seqs * group, head_dim)
    shared_keys = _ranged(gather(key_cache, prefix, scratch, "shared keys"))
    shared = torch.bmm(together, shared_keys.transpose(1, 2))
    shared = shared.view(kv_heads, num_seqs, group, prefix.length).transpose(0, 1).to(work).mul_(scale)
    weights = torch.softmax(torch.cat((shared, scores), -1), -1).to(query.dtype)
    out = torch.matmul(weights[..., prefix.length :], gather(value_cache, index, scratch, "values"))
    over = weights[..., : prefix.length].transpose(0, 1).reshape(kv_heads, num_seqs * group, prefix.length)
    below = torch.bmm(over, gather(value_cache, prefix, scratch, "shared values"))
    out += below.view(kv_heads, num_seqs, group, below.shape[2]).transpose(0, 1)
    return out.view(num_seqs, num_heads, value_cache.shape[3])


def _ranged(rows: Tensor) -> Tensor:
    """Rows in a dtype that can hold their products: float16 ends at 65,504."""
    return rows.float() if rows.dtype == torch.float16 else rows


def gather(cache: Tensor, index: CacheRows, scratch: Scratch, name: str) -> Tensor:
    """The cached rows of `index` as [..., num_kv_heads, length, head_dim], in the buffer `name` of `scratch`."""
    kv_heads, head_dim = cache.shape[1], cache.shape[3]
    rows = scratch.take(name, (*index.shape[:-1], kv_heads, index.shape[-1], head_dim), cache)
    cached, room = (tensor.reshape(math.prod(tensor.shape[:-1]), head_dim) for tensor in (cache, rows))
    torch.index_select(cached, 0, index.rows(kv_heads), out=room)
    return rows if index.blind is None else rows.masked_fill_(index.blind[:, None, None, None], 0)


def attend_plainly(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    index: ReadIndex,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    lse: Tensor | None,
) -> Tensor:
    """Softmax written out in float32 or better, for what the library's function cannot do; arguments as `attend`.

    `keys` and `values` are gathered: [num_seqs, num_kv_heads, length, head_dim].
    """
    work = torch.promote_types(query.dtype, torch.float32)
    num_seqs, q_len, num_heads, head_dim = query.shape
    kv_heads = keys.shape[1]
    group = num_heads // kv_heads
    heads = (num_seqs, kv_heads, group, q_len)
    rows = query.to(work).view(num_seqs, q_len, kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
    folded = rows.reshape(num_seqs, kv_heads, group * q_len, head_dim)
    scores = (torch.matmul(folded, keys.to(work).transpose(2, 3)) * scale).view(*heads, index.length)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    if index.visible is not None:
        scores = scores.masked_fill(~index.visible[:, None, None], -torch.inf)
    top = scores.amax(-1, keepdim=True)
    sink = None if sinks is None else sinks.to(work).view(1, kv_heads, -1, 1, 1)
    if sink is not None:
        top = torch.maximum(top, sink)
    top = top.masked_fill(top == -torch.inf, 0)
    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - top)
    if lse is not None:
        base2 = ((torch.log(total) + top) / math.log(2.0)).permute(0, 3, 1, 2, 4)
        lse.copy_(base2.reshape(lse.shape))
    weights = weights / total.masked_fill(total == 0, 1)
    out = torch.matmul(weights.view(num_seqs, kv_heads, group * q_len, index.length), values.to(work))
    value_dim = values.shape[3]
    return out.view(*heads, value_dim).permute(0, 3, 1, 2, 4).reshape(num_seqs, q_len, num_heads, value_dim)


def attend_ragged(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    index: RaggedIndex,
    scale: float,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    lse: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """The same for query [num_tokens, num_heads, head_dim] of sequences laid end to end; `lse` [num_tokens, num_heads].

    Returns [num_tokens, num_heads, value head_dim].
    """
    out = query.new_zeros(*query.shape[:2], value_cache.shape[3])
    if lse is not None:
        lse.fill_(-torch.inf)
    for start, stop, chunk in index.chunks:
        part = None if lse is None else lse[start:stop].unsqueeze(0)
        rows = query[start:stop].unsqueeze(0)
        out[start:stop] = attend(rows, key_cache, value_cache, chunk, scale, softcap, sinks, part, scratch)[0]
    return out


def merge_states(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the keys of both from the results over each (FlashInfer's merge of states).

    Outs [.., head_dim], base-2 lses [..] float32 or better; an lse of -inf means that no key was seen. Returns the
    merged out in the wider type of sums, and its lse.
    """
    work = torch.promote_types(torch.promote_types(out_a.dtype, lse_a.dtype), torch.float32)
    a, b = lse_a.to(work), lse_b.to(work)
    total = torch.logaddexp2(a, b)
    safe = total.masked_fill(total == -torch.inf, 0)
    weights_a, weights_b = torch.exp2(a - safe).unsqueeze(-1), torch.exp2(b - safe).unsqueeze(-1)
    # What a part that saw nothing holds may be anything, NaN too.
    merged = (out_a.to(work) * weights_a).masked_fill(weights_a == 0, 0)
    return merged + (out_b.to(work) * weights_b).masked_fill(weights_b == 0, 0), total
