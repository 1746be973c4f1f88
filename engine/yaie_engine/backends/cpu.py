"""Attention on the CPU by kernels that are built for this machine: they read the paged cache in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from yaie_cuda import reference
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_engine.batch import FlatBatch
from yaie_engine.upload import upload

from .base import AttentionCall, BackendName

if TYPE_CHECKING:
    from yaie_engine.graphs import DecodeInputs


class CpuAttention:
    """The CPU kernels; `reason` says why it is they. Raises as `CpuKernels`."""

    name: BackendName = "cpu"

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.kernels = CpuKernels()

    def step(self, batch: FlatBatch) -> CpuStep:
        """Slots, block tables and contexts of `batch`; indexes of chunks when the first layer of a window asks."""
        single, device = batch.num_single, batch.device
        return CpuStep(
            self.kernels,
            slots=upload(batch.slots, torch.int64, device),
            tables=upload(batch.tables, torch.int32, device).reshape(len(batch.entries), -1),
            contexts=upload(batch.contexts[:single], torch.int32, device),
            work=sum(batch.contexts[:single]),
            chunks=Chunks.of(batch) if single < batch.num_tokens else None,
        )

    def decodes(self, inputs: DecodeInputs) -> CpuStep:
        """A step of decodes that is recorded: numbers may change before it runs again."""
        return CpuStep(self.kernels, inputs.slots, inputs.tables, inputs.contexts)

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every cache."""
        reference.copy_blocks(keys, values, torch.tensor(pairs, dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class Chunks:
    """The entries of more than one token: where they begin and end, int32 [chunks + 1], and their contexts, int32.

    `work` is how many tokens all their rows may see together.
    """

    starts: Tensor
    contexts: Tensor
    work: int

    @classmethod
    def of(cls, batch: FlatBatch) -> Chunks:
        entries, device = batch.entries[batch.num_single :], batch.device
        contexts = upload(batch.contexts[batch.num_single :], torch.int32, device)
        work = sum(entry.num_tokens * (entry.start + entry.stop) // 2 for entry in entries)
        return cls(upload(batch.chunk_starts, torch.int32, device), contexts, work)


class CpuStep:
    """One step's tensors: slots int64 [num_tokens], -1 writes nothing; tables int32, by entry; contexts int32, of those
    entries that have one token. `work` is how many tokens these see together."""

    def __init__(
        self,
        kernels: CpuKernels,
        slots: Tensor,
        tables: Tensor,
        contexts: Tensor,
        work: int = 0,
        chunks: Chunks | None = None,
    ) -> None:
        self._kernels, self._slots, self._tables, self._contexts = kernels, slots, tables, contexts
        self._work, self._chunks = work, chunks

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Store K and V of the step's tokens."""
        self._kernels.reshape_and_cache(_runs(key), _runs(value), key_cache, value_cache, self._slots)

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """Rotate query and key in place, and store."""
        self._kernels.rotary_reshape_and_cache(query, key, _runs(value), *tables, *caches, self._slots)

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """The one-token rows, then the chunks behind them."""
        single, heads, dim = len(self._contexts), query.shape[1], query.shape[2]
        if query.stride(2) != 1 or query.stride(1) != dim:
            query = query.contiguous()  # the kernel takes the heads of a token as one run
        out = query.new_empty(query.shape[0], heads, value_cache.shape[3])
        if single:
            self._kernels.attend_rows(
                query[:single],
                key_cache,
                value_cache,
                self._tables[:single],
                self._contexts,
                call.scale,
                call.sliding_window,
                call.softcap,
                call.sinks,
                out[:single],
                self._work,
            )
        if self._chunks is not None:
            self._kernels.attend_chunks(
                query[single:],
                key_cache,
                value_cache,
                self._tables[single:],
                self._chunks.starts,
                self._chunks.contexts,
                call.scale,
                call.sliding_window,
                call.softcap,
                call.sinks,
                out[single:],
                self._chunks.work,
            )
        return out


def _runs(states: Tensor) -> Tensor:
    """`states` with every head as one run in memory."""
    return states if states.stride(-1) == 1 else states.contiguous()
