"""The reference backend: attention in torch, on any device. It defines what the kernels must give."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie_cuda import reference
from yaie_cuda.paging import PrefixIndex, RaggedIndex, ReadIndex, Scratch, WriteIndex
from yaie_engine.batch import FlatBatch
from yaie_engine.upload import upload

from .base import AttentionCall, BackendName
from .bunches import bunches


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
        self._decodes: dict[int, Decodes] = {}
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
        """A batched call for each bunch of one-token rows, a loop over the chunks behind them."""
        single, parts = self._batch.num_single, []
        how = (call.scale, call.softcap, call.sinks)
        if single:
            decodes = self._decodes_of(call)
            parts.append(decodes.attend(query[:single], key_cache, value_cache, call, self._scratch))
        if single < self._batch.num_tokens:
            chunks = self._chunk_index(call.sliding_window)
            rows = query[single:]
            parts.append(reference.attend_ragged(rows, key_cache, value_cache, chunks, *how, scratch=self._scratch))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decodes_of(self, call: AttentionCall) -> Decodes:
        """A prefix that is read for all is seen whole by all: none with a window, or where sums are written out."""
        window = call.sliding_window
        shares = not (window or call.softcap or call.sinks is not None)
        key = -1 if shares else window
        if key not in self._decodes:
            self._decodes[key] = Decodes(self._batch, self._tables, window, shares)
        return self._decodes[key]

    def _chunk_index(self, window: int) -> RaggedIndex:
        if window not in self._chunks:
            batch, count = self._batch, self._batch.num_single
            self._chunks[window] = RaggedIndex(
                self._tables[count:], batch.chunk_starts, batch.contexts[count:], batch.block_size, window
            )
        return self._chunks[window]


class Decodes:
    """The one-token rows of a step in bunches, with what each bunch reads."""

    def __init__(self, batch: FlatBatch, tables: Tensor, window: int, shares: bool) -> None:
        size, device, count = batch.block_size, batch.device, batch.num_single
        contexts = batch.contexts[:count]
        seen = [min(context, window) if window else context for context in contexts]
        found = bunches(batch.tables[:count] if shares else (), seen, size)
        order = [row for bunch in found for row in bunch.rows]
        in_order = order == list(range(count))
        self._order = None if in_order else upload(order, torch.int64, device)
        back = [0] * count
        for place, row in enumerate(order):
            back[row] = place
        self._back = None if in_order else upload(back, torch.int64, device)
        lens = upload(contexts, torch.int64, device)
        self._parts: list[tuple[int, int, ReadIndex, PrefixIndex | None]] = []
        start = 0
        for bunch in found:
            rows = None if in_order and len(found) == 1 else upload(bunch.rows, torch.int64, device)
            own = (tables[:count], lens) if rows is None else (tables[rows], lens[rows])
            stop = start + len(bunch.rows)
            prefix = PrefixIndex(tables[bunch.rows[0], : bunch.prefix // size], size) if bunch.prefix else None
            self._parts.append((start, stop, ReadIndex(*own, 1, size, window, bunch.prefix), prefix))
            start = stop

    def attend(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall, scratch: Scratch
    ) -> Tensor:
        """query [num_single, heads, head_dim] to [num_single, heads, value_dim]."""
        if self._order is not None:
            query = query[self._order]
        outs = []
        for start, stop, index, prefix in self._parts:
            rows = query[start:stop]
            if call.softcap or call.sinks is not None:
                how = (call.scale, call.softcap, call.sinks)
                out = reference.attend(rows.unsqueeze(1), key_cache, value_cache, index, *how, scratch=scratch)
                outs.append(out.squeeze(1))
            else:
                outs.append(reference.attend_rows(rows, key_cache, value_cache, index, call.scale, prefix, scratch))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out if self._back is None else out[self._back]
