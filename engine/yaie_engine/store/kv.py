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

from .body import Slot, Slots, room, unpack
from .record import Body

PrefixKV = dict[int, tuple[Tensor, Tensor]]
"""K and V of each layer, [tokens, kv_heads, head_dim] on the CPU."""


def identity_of(model: Any, fingerprint: str, dtype: torch.dtype, layout: KVLayout, state: str = "") -> str:
    """64 hex digits for all that KV depends on but its tokens: weights, configuration, RoPE, dtype and layout.

    `state` describes what else a sequence keeps, where it is kept whole.
    The tables of RoPE count as they are now: some models choose them by the longest context that they are to serve.
    """
    layers = [[part.layer, part.kv_heads, part.key_dim, part.value_dim] for part in layout.layers]
    digest = hashlib.sha256(json.dumps([fingerprint, str(dtype), layers]).encode() + state.encode())
    for name, value in sorted(model.named_buffers()):
        if "inv_freq" in name and not name.rpartition(".")[2].startswith("original"):
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.detach().double().cpu().contiguous().numpy().tobytes())
    for name, module in sorted(model.named_modules()):
        if (scaling := getattr(module, "attention_scaling", None)) is not None:
            digest.update(f"{name} {scaling}".encode())
    return digest.hexdigest()


class KVCopy:
    """KV of a prefix on its way from blocks into the body of a record, piece by piece. `copied` tokens are there."""

    def __init__(self, num_tokens: int, layout: KVLayout, dtype: torch.dtype) -> None:
        self.num_tokens, self.copied = num_tokens, 0
        self._body, self._parts = room(_slots(num_tokens, layout, dtype))

    @property
    def done(self) -> bool:
        """Whether all of it is there."""
        return self.copied == self.num_tokens

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token over all layers."""
        return sum(part[:1].nbytes for part in self._parts.values())

    @torch.inference_mode()
    def take(self, cache: KVCache, table: Sequence[int], stop: int) -> None:
        """Copy the tokens up to `stop`, the end of a block or of the prefix, out of a block table."""
        size, start = cache.block_size, self.copied
        index = torch.tensor(table[start // size : -(-stop // size)], device=cache.device)
        for layer, pair in cache.layers.items():
            for what, tensor in zip("kv", pair, strict=True):
                rows = tensor.index_select(0, index).transpose(1, 2).flatten(0, 1)
                self._parts[f"{what}.{layer}"][start:stop].copy_(rows[: stop - start])
        self.copied = stop

    def is_sound(self) -> bool:
        """Whether every number is finite: what a broken step has left must not be kept."""
        return all(bool(part.isfinite().all()) for part in self._parts.values())

    def body(self) -> memoryview:
        """The body of a record."""
        return self._body


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


def from_body(body: Body, num_tokens: int, layout: KVLayout, dtype: torch.dtype) -> PrefixKV:
    """The KV in a body whose checksum was right, which it shares.

    Raises:
        DamagedRecordError: it is not KV of so many tokens in this layout.
    """
    named = unpack(body, _slots(num_tokens, layout, dtype))
    return {part.layer: (named[f"k.{part.layer}"], named[f"v.{part.layer}"]) for part in layout.layers}


def _slots(num_tokens: int, layout: KVLayout, dtype: torch.dtype) -> Slots:
    slots: Slots = {}
    for part in layout.layers:
        slots[f"k.{part.layer}"] = Slot((num_tokens, part.kv_heads, part.key_dim), dtype)
        slots[f"v.{part.layer}"] = Slot((num_tokens, part.kv_heads, part.value_dim), dtype)
    return slots
