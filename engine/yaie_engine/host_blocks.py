"""The memory of host blocks, and copies between them and the blocks of the KV cache."""

from __future__ import annotations

import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie

from .errors import ModelLoadError
from .kv_cache import KVCache, KVLayout
from .memory import free_memory, gib


class HostBlocks:
    """`num_blocks` blocks of every layer of `cache` in RAM, pinned where the cache is on a GPU. Engine thread only.

    Both directions are in order with the steps, since op `swap_blocks` copies on the current stream.
    """

    def __init__(self, num_blocks: int, cache: KVCache) -> None:
        self.num_blocks, self.cache = num_blocks, cache
        self._tensors: list[Tensor] = []

    def allocate(self, layout: KVLayout) -> None:
        """Make the tensors of `layout`.

        Raises:
            ModelLoadError: they do not fit into RAM.
        """
        needed = self.num_blocks * self.cache.block_size * layout.bytes_per_token(self.cache.dtype)
        free = free_memory(torch.device("cpu"))
        if needed > free:
            raise ModelLoadError(
                f"num_cpu_blocks={self.num_blocks} needs {gib(needed)} and {gib(free)} of RAM are free: the largest "
                f"num_cpu_blocks that fits is {self.num_blocks * free // needed}"
            )
        self._tensors = [
            torch.empty(
                (self.num_blocks, part.kv_heads, self.cache.block_size, dim),
                dtype=self.cache.dtype,
                pin_memory=self.cache.device.type == "cuda",
            )
            for part in (layout.layers if self.num_blocks else ())
            for dim in (part.key_dim, part.value_dim)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of all layers; 0 while nothing is allocated."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def out(self, pairs: list[tuple[int, int]]) -> None:
        """Copy blocks, (device block, host block) each."""
        self._move(self._device(), self._tensors, pairs)

    def into(self, pairs: list[tuple[int, int]]) -> None:
        """Copy blocks, (host block, device block) each."""
        self._move(self._tensors, self._device(), pairs)

    def clear(self) -> None:
        """Drop every tensor."""
        self._tensors = []

    def _device(self) -> list[Tensor]:
        return [tensor for pair in self.cache.layers.values() for tensor in pair]

    def _move(self, sources: list[Tensor], targets: list[Tensor], pairs: list[tuple[int, int]]) -> None:
        if not pairs:
            return
        with torch.inference_mode():
            torch.ops.yaie.swap_blocks(sources, targets, torch.tensor(pairs, dtype=torch.int64))
