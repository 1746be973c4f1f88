"""KV of a prefix between the blocks of a cache and the body of a record.

A body holds, for each layer, K and V as [tokens, kv_heads, head_dim], so that it fits any block size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from yaie_engine.kv_cache import KVCache, KVLayout

from .body import Shapes, pack, unpack
from .record import Body

PrefixKV = dict[int, tuple[Tensor, Tensor]]
"""K and V of each layer, [tokens, kv_heads, head_dim] on the CPU."""


def identity_of(model: Any, fingerprint: str, dtype: torch.dtype, layout: KVLayout) -> str:
    """64 hex digits for all that KV depends on but its tokens: weights, configuration, RoPE, dtype and layout.

    The tables of RoPE count as they are now: some models choose them by the longest context that they are to serve.
    """
    layers = [[part.layer, part.kv_heads, part.key_dim, part.value_dim] for part in layout.layers]
    digest = hashlib.sha256(json.dumps([fingerprint, str(dtype), layers]).encode())
    for name, value in sorted(model.named_buffers()):
        if "inv_freq" in name and not name.rpartition(".")[2].startswith("original"):
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.detach().double().cpu().contiguous().numpy().tobytes())
    for name, module in sorted(model.named_modules()):
        if (scaling := getattr(module, "attention_scaling", None)) is not None:
            digest.update(f"{name} {scaling}".encode())
    return digest.hexdigest()


def read_blocks(cache: KVCache, blocks: Sequence[int], num_tokens: int) -> PrefixKV:
    """A copy of the first `num_tokens` tokens of a block table."""
    found: PrefixKV = {}
    for layer, pair in cache.layers.items():
        index = torch.tensor(blocks, device=cache.device)
        key, value = (tensor.index_select(0, index).transpose(1, 2).flatten(0, 1)[:num_tokens] for tensor in pair)
        found[layer] = (key.contiguous().cpu(), value.contiguous().cpu())
    return found


def write_blocks(cache: KVCache, blocks: Sequence[int], kv: PrefixKV, start: int, stop: int) -> None:
    """Write the tokens from `start`, where a block begins, to `stop` into these blocks, in every layer."""
    size = cache.block_size
    whole, rest = divmod(stop - start, size)
    index = torch.tensor(blocks[:whole], dtype=torch.int64, device=cache.device)
    for layer, pair in cache.layers.items():
        for target, source in zip(pair, kv[layer], strict=True):
            if whole:
                full = source[start : start + whole * size].view(whole, size, *source.shape[1:]).transpose(1, 2)
                target.index_copy_(0, index, full.to(cache.device))
            if rest:
                target[blocks[whole], :, :rest] = source[start + whole * size : stop].transpose(0, 1).to(cache.device)


def is_sound(kv: PrefixKV) -> bool:
    """Whether every number is finite: what a broken step has left must not be kept."""
    return all(bool(tensor.isfinite().all()) for pair in kv.values() for tensor in pair)


def to_body(kv: PrefixKV) -> memoryview:
    """The body of a record."""
    return pack({f"{what}.{layer}": part for layer, pair in kv.items() for what, part in zip("kv", pair, strict=True)})


def from_body(body: Body, num_tokens: int, layout: KVLayout, dtype: torch.dtype) -> PrefixKV:
    """The KV in a body whose checksum was right, which it shares.

    Raises:
        DamagedRecordError: it is not KV of so many tokens in this layout.
    """
    shapes: Shapes = {}
    for part in layout.layers:
        shapes[f"k.{part.layer}"] = (num_tokens, part.kv_heads, part.key_dim)
        shapes[f"v.{part.layer}"] = (num_tokens, part.kv_heads, part.value_dim)
    named = unpack(body, shapes, dtype)
    return {part.layer: (named[f"k.{part.layer}"], named[f"v.{part.layer}"]) for part in layout.layers}
