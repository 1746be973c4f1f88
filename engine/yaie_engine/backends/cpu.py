"""Attention on the CPU by kernels that are built for this machine: single rows read the paged cache in place.

Chunks of prompts, whose work is arithmetic, are gathered and attended by torch as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie_cuda import reference
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_cuda.paging import RaggedIndex, Scratch
from yaie_engine.batch import FlatBatch
from yaie_engine.upload import upload

from .base import AttentionCall, BackendName


class CpuAttention:
    """The CPU kernels; `reason` says why it is they. Raises as `CpuKernels`."""

    name: BackendName = "cpu"

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.kernels = CpuKernels()
        self._scratch = Scratch()

    def step(self, batch: FlatBatch) -> CpuStep:
        """Slots, block tables and contexts of `batch`; indexes of chunks when the first layer of a window asks."""
        return CpuStep(self.kernels, batch, self._scratch)

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every cache."""
        reference.copy_blocks(keys, values, torch.tensor(pairs, dtype=torch.int64))


class CpuStep:
    """One step's tensors: slots int64 [num_tokens], -1 writes nothing; tables and contexts int32, by entry."""

    def __init__(self, kernels: CpuKernels, batch: FlatBatch, scratch: Scratch) -> None:
        self._kernels, self._batch, self._scratch = kernels, batch, scratch
        single = batch.num_single
        self._slots = upload(batch.slots, torch.int64, batch.device)
        self._tables = upload(batch.tables, torch.int32, batch.device).reshape(len(batch.entries), -1)
        self._contexts = upload(batch.contexts[:single], torch.int32, batch.device)
        self._seen = sum(batch.contexts[:single])
        self._chunks: dict[int, RaggedIndex] = {}

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Store K and V of the step's tokens."""
        self._kernels.reshape_and_cache(_runs(key), _runs(value), key_cache, value_cache, self._slots)

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """Rotate query and key in place, and store."""
        self._kernels.rotary_reshape_and_cache(query, key, _runs(value), *tables, *caches, self._slots)

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """The one-token rows by the kernel, and the chunks behind them by torch."""
        single, heads, dim = self._batch.num_single, query.shape[1], query.shape[2]
        if query.stride(2) != 1 or query.stride(1) != dim:
            query = query.contiguous()  # the kernel takes the heads of a token as one run
        out = query.new_empty(query.shape[0], heads, value_cache.shape[3])
        if single:
            sinks = None if call.sinks is None else call.sinks.float().contiguous()
            self._kernels.attend_rows(
                query[:single],
                key_cache,
                value_cache,
                self._tables[:single],
                self._contexts,
                call.scale,
                call.sliding_window,
                call.softcap,
                sinks,
                out[:single],
                self._seen,
            )
        if single < self._batch.num_tokens:
            how = call.scale, call.softcap, call.sinks
            index = self._chunk_index(call.sliding_window)
            out[single:] = reference.attend_ragged(
                query[single:], key_cache, value_cache, index, *how, scratch=self._scratch
            )
        return out

    def _chunk_index(self, window: int) -> RaggedIndex:
        if window not in self._chunks:
            batch, count = self._batch, self._batch.num_single
            starts, contexts = batch.chunk_starts, batch.contexts[count:]
            self._chunks[window] = RaggedIndex(self._tables[count:], starts, contexts, batch.block_size, window)
        return self._chunks[window]


def _runs(states: Tensor) -> Tensor:
    """`states` with every head as one run in memory."""
    return states if states.stride(-1) == 1 else states.contiguous()
