"""The reference backend: attention in torch, on any device. It defines what the kernels must give."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie_cuda import reference
from yaie_cuda.paging import RaggedIndex, ReadIndex, Scratch, WriteIndex
from yaie_engine.batch import FlatBatch
from yaie_engine.upload import upload

from .base import AttentionCall, BackendName


class ReferenceAttention:
    """Gathers K and V by index and attends with torch: one batched call for single rows, a loop over chunks."""

    name: BackendName = "reference"

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self._scratch = Scratch()

    def step(self, batch: FlatBatch) -> ReferenceStep:
        """Indexes of `batch`; reads are built when the first layer of a window asks for them."""
        return ReferenceStep(batch, self._scratch)

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every cache."""
        reference.copy_blocks(keys, values, torch.tensor(pairs, dtype=torch.int64))


class ReferenceStep:
    """One step's index tensors; reads depend on the layer's sliding window."""

    def __init__(self, batch: FlatBatch, scratch: Scratch) -> None:
        self._batch, self._scratch = batch, scratch
        self._write = WriteIndex(upload(batch.slots, torch.int64, batch.device), batch.block_size)
        self._tables = upload(batch.tables, torch.int64, batch.device)
        self._single: dict[int, ReadIndex] = {}
        self._chunks: dict[int, RaggedIndex] = {}

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Store K and V of the step's tokens."""
        reference.write_cache(key, value, key_cache, value_cache, self._write)

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """Rotate the query in place and store the rotated key and the value."""
        query.copy_(reference.rotate(query, *tables))
        reference.write_cache(reference.rotate(key, *tables), value, *caches, self._write)

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """One batched call for the one-token rows, a loop over the chunks behind them."""
        single, parts = self._batch.num_single, []
        how = (call.scale, call.softcap, call.sinks)
        if single:
            rows, index = query[:single].unsqueeze(1), self._single_index(call.sliding_window)
            out = reference.attend(rows, key_cache, value_cache, index, *how, scratch=self._scratch)
            parts.append(out.squeeze(1))
        if single < self._batch.num_tokens:
            chunks = self._chunk_index(call.sliding_window)
            rows = query[single:]
            parts.append(reference.attend_ragged(rows, key_cache, value_cache, chunks, *how, scratch=self._scratch))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _single_index(self, window: int) -> ReadIndex:
        if window not in self._single:
            batch, count = self._batch, self._batch.num_single
            lens = upload(batch.contexts[:count], torch.int64, batch.device)
            self._single[window] = ReadIndex(self._tables[:count], lens, 1, batch.block_size, window)
        return self._single[window]

    def _chunk_index(self, window: int) -> RaggedIndex:
        if window not in self._chunks:
            batch, count = self._batch, self._batch.num_single
            self._chunks[window] = RaggedIndex(
                self._tables[count:], batch.chunk_starts, batch.contexts[count:], batch.block_size, window
            )
        return self._chunks[window]
