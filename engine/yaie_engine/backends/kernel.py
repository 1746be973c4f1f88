"""The kernel backend: attention by our CUDA kernels, on a GPU or emulated on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from yaie_engine.batch import FlatBatch
from yaie_engine.upload import upload

from .base import AttentionCall, BackendName
from .cascade import L2_BYTES, CascadeGate, Groups
from .kernels import Kernels

if TYPE_CHECKING:
    from yaie_engine.graphs import DecodeInputs


class KernelAttention:
    """Index tensors are made once per step from plain numbers; nothing is read back from the device."""

    def __init__(self, kernels: Kernels, name: BackendName, reason: str = "") -> None:
        self.kernels, self.name, self.reason = kernels, name, reason
        self.draw_refused = ""  # why tokens are drawn by torch all the same
        limits = getattr(kernels.launcher, "limits", None)  # of a GPU
        self.gate = CascadeGate(limits.l2_bytes if limits is not None else L2_BYTES)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that the kernels keep for the current stream of a GPU; 0 elsewhere."""
        return int(getattr(self.kernels.launcher, "buffer_bytes", 0))

    def drop_buffers(self) -> None:
        """Let go of the buffers that the kernels keep on a GPU. What was captured with them may not run any more."""
        drop = getattr(self.kernels.launcher, "drop_buffers", None)
        if drop is not None:
            drop()

    def step(self, batch: FlatBatch) -> KernelStep:
        """The step's tensors: block tables and contexts of all entries, where chunks begin, groups that share."""
        device, single = batch.device, batch.num_single
        starts = batch.chunk_starts
        chunks = None
        if len(starts) > 1:
            longest = max(entry.num_tokens for entry in batch.entries[single:])
            chunks = Chunks(upload(starts, torch.int32, device), longest)
        return KernelStep(
            self.kernels,
            slots=upload(batch.slots, torch.int64, device),
            tables=upload(batch.tables, torch.int32, device),
            contexts=upload(batch.contexts, torch.int32, device),
            num_single=single,
            chunks=chunks,
            groups=Groups.of(batch.sharing, device) if batch.sharing is not None else None,
            gate=self.gate,
        )

    def decodes(self, inputs: DecodeInputs) -> KernelStep:
        """A step of decodes that is captured: numbers may change before it runs again."""
        return KernelStep(
            self.kernels,
            inputs.slots,
            inputs.tables,
            inputs.contexts,
            inputs.rows,
            groups=inputs.groups,
            gate=self.gate,
        )

    def copy_blocks(self, keys: Sequence[Tensor], values: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) each, in every cache: one launch."""
        self.kernels.copy_blocks(list(keys), list(values), upload(pairs, torch.int64, keys[0].device))


@dataclass(frozen=True, slots=True)
class Chunks:
    """The entries of more than one token: `starts` int32 [chunks + 1], and the length of the longest."""

    starts: Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One step's index tensors.

    `slots` int64 [num_tokens], -1 writes nothing; `tables` int32 [entries, width] and `contexts` int32 [entries], those
    of the `num_single` one-token entries first; a context of 0 sees nothing and gives 0. With `groups` the one-token
    entries read the prefixes that they share together, in the layers that `gate` lets.
    """

    kernels: Kernels
    slots: Tensor
    tables: Tensor
    contexts: Tensor
    num_single: int
    chunks: Chunks | None = None
    groups: Groups | None = None
    gate: CascadeGate = field(default_factory=CascadeGate)

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
        """Store K and V of the step's tokens."""
        self.kernels.reshape_and_cache(key, value, key_cache, value_cache, self.slots)

    def rotate_and_write(
        self, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor]
    ) -> None:
        """Rotation and store in one launch."""
        self.kernels.rotary_reshape_and_cache(query, key, value, *tables, *caches, self.slots)

    def attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall) -> Tensor:
        """The one-token rows, plainly or as a cascade; one launch for all chunks. Both write into the same output."""
        if query.stride()[1:] != (query.shape[2], 1):
            query = query.contiguous()  # the kernels take the heads of a token as one run
        out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
        single, how = self.num_single, (call.scale, call.sliding_window, call.softcap, call.sinks)
        shape = (query.shape[1], key_cache.shape[1], query.shape[2], query.itemsize)
        cascades = self.gate.serves(call.sliding_window, shape)
        if single and self.groups is not None and cascades:
            self._cascade(query, key_cache, value_cache, call, self.groups, out)
        elif single:
            self.kernels.paged_attention_decode(
                query[:single].unsqueeze(1),
                key_cache,
                value_cache,
                self.tables[:single],
                self.contexts[:single],
                *how,
                out[:single].unsqueeze(1),
                None,
            )
        if self.chunks is not None:
            self.kernels.paged_attention_prefill(
                query[single:],
                key_cache,
                value_cache,
                self.tables[single:],
                self.chunks.starts,
                self.contexts[single:],
                self.chunks.longest,
                *how,
                out[single:],
                None,
            )
        return out

    def _cascade(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, call: AttentionCall, groups: Groups, out: Tensor
    ) -> None:
        """The one-token rows in three launches: prefixes, the rest, and both merged."""
        single, stride = self.num_single, query.stride(0)
        self.kernels.cascade_attention_decode(
            # Rows may lie apart (a slice of a joint projection); the kernel takes any stride of tokens.
            query.as_strided((single, 1, *query.shape[1:]), (stride, *query.stride())),
            key_cache,
            value_cache,
            self.tables[:single],
            self.contexts[:single],
            groups.starts,
            groups.shared_lens,
            groups.largest,
            call.scale,
            call.softcap,
            call.sinks,
            out[:single].unsqueeze(1),
            None,
        )
