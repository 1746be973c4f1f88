"""The paged KV tensors of all layers, and how many blocks of them fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .backends.base import AttentionBackend
from .backends.reference import ReferenceAttention


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """K and V of one layer: heads and dimensions."""

    layer: int
    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one token costs in every layer that keeps K and V; layers may differ."""

    layers: tuple[LayerLayout, ...]

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of K and V of one token over all layers."""
        return sum(part.kv_heads * (part.key_dim + part.value_dim) for part in self.layers) * dtype.itemsize

    @classmethod
    def of(cls, cache: KVCache) -> KVLayout:
        """The layout of tensors that exist."""
        layers = []
        for layer, (key, value) in sorted(cache.layers.items()):
            layers.append(LayerLayout(layer, key.shape[1], key.shape[3], value.shape[3]))
        return cls(tuple(layers))


class KVCache:
    """Per layer one K and one V tensor [num_blocks, kv_heads, block_size, head_dim]. Content starts undefined.

    `backend` is who writes and reads them.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        backend: AttentionBackend | None = None,
    ) -> None:
        self.num_blocks, self.block_size, self.dtype, self.device = num_blocks, block_size, dtype, device
        self.backend = backend or ReferenceAttention()
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all layers; 0 while nothing is allocated."""
        return sum(tensor.nbytes for pair in self.layers.values() for tensor in pair)

    def allocate(self, layout: KVLayout) -> None:
        """Make the tensors of `layout`. Raises RuntimeError or torch.OutOfMemoryError where memory ends."""
        for part in layout.layers:
            self.layers[part.layer] = (self._new(part.kv_heads, part.key_dim), self._new(part.kv_heads, part.value_dim))

    def layer(self, layer: int, kv_heads: int, key_dim: int, value_dim: int) -> tuple[Tensor, Tensor]:
        """K and V of `layer`; the shapes are those that the caller is about to write."""
        return self.layers[layer]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every layer."""
        if pairs and self.layers:
            keys, values = zip(*self.layers.values(), strict=True)
            self.backend.copy_blocks(keys, values, pairs)

    def clear(self) -> None:
        """Drop every tensor."""
        self.layers.clear()

    def _new(self, kv_heads: int, head_dim: int) -> Tensor:
        shape = (self.num_blocks, kv_heads, self.block_size, head_dim)
        return torch.empty(shape, dtype=self.dtype, device=self.device)


class GrowingKVCache(KVCache):
    """A small cache that takes the shapes it sees, filled with NaN: a read of a slot never written shows."""

    def layer(self, layer: int, kv_heads: int, key_dim: int, value_dim: int) -> tuple[Tensor, Tensor]:
        if layer not in self.layers:
            key, value = self._new(kv_heads, key_dim), self._new(kv_heads, value_dim)
            self.layers[layer] = (key.fill_(torch.nan), value.fill_(torch.nan))
        return self.layers[layer]
