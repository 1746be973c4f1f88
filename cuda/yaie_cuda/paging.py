"""Where tokens lie in a paged cache: index tensors that are built once per step and used by every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def cache_rows(blocks: Tensor, offsets: Tensor, num_heads: int, block_size: int) -> Tensor:
    """Rows of a cache seen as [num_blocks * num_heads * block_size, head_dim].

    `blocks` and `offsets` are int64 [..., length]; the result is int64, flat, in the order [..., num_heads, length].
    """
    heads = torch.arange(num_heads, device=blocks.device).unsqueeze(-1)
    rows = (blocks.unsqueeze(-2) * num_heads + heads) * block_size + offsets.unsqueeze(-2)
    return rows.flatten()


class Scratch:
    """Buffers that one owner reuses from layer to layer and step to step; they grow to the largest gather so far.

    Without it every layer of every step asks the system for fresh pages, which costs more than the copy itself.
    """

    def __init__(self) -> None:
        self._flat: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of `shape`; its content, and that of the last one taken under `name`, is undefined."""
        needed = math.prod(shape)
        flat = self._flat.get((name, like.dtype))
        if flat is None or flat.numel() < needed:
            flat = torch.empty(needed + needed // 2, dtype=like.dtype, device=like.device)
            self._flat[name, like.dtype] = flat
        return flat[:needed].view(shape)


class CacheRows:
    """Tokens of a paged cache by block and offset, int64 [..., length] both; rows are made once for each width."""

    blind: Tensor | None = None
    """Bool [num_seqs]: the sequences without a token to read; None when each has one."""

    def __init__(self, blocks: Tensor, offsets: Tensor, block_size: int) -> None:
        self.block_size = block_size
        self.shape = blocks.shape
        self._blocks, self._offsets = blocks, offsets
        self._rows: dict[int, Tensor] = {}

    def rows(self, num_heads: int) -> Tensor:
        """Cache rows, flat, in the order [..., num_heads, length]."""
        if num_heads not in self._rows:
            self._rows[num_heads] = cache_rows(self._blocks, self._offsets, num_heads, self.block_size)
        return self._rows[num_heads]


class WriteIndex(CacheRows):
    """Where the new tokens of a step go. `slot_mapping` int64 [num_tokens]; -1 writes nothing."""

    def __init__(self, slot_mapping: Tensor, block_size: int) -> None:
        kept = (slot_mapping >= 0).nonzero().flatten()
        self.kept: Tensor | None = None if kept.numel() == slot_mapping.numel() else kept
        slots = slot_mapping if self.kept is None else slot_mapping[kept]
        super().__init__(slots // block_size, slots % block_size, block_size)


class ReadIndex(CacheRows):
    """The visible keys of several sequences with `q_len` query rows each, padded to the longest.

    `block_tables` int [num_seqs, max_blocks]; `context_lens` int [num_seqs], this step's tokens included. Query row j
    of a sequence stands at position context_len - q_len + j and sees the positions up to its own, with a sliding
    window only the last `sliding_window` of them. Padding points at the first visible slot of the same sequence, so
    that no slot that was never written is read: what lies there may be NaN, and 0 x NaN is NaN.
    """

    def __init__(
        self,
        block_tables: Tensor,
        context_lens: Tensor,
        q_len: int,
        block_size: int,
        sliding_window: int = 0,
        skip: int = 0,
    ) -> None:
        self.num_seqs, self.q_len = context_lens.shape[0], q_len
        lens = context_lens.long().unsqueeze(1)
        first = torch.full_like(lens, skip)
        if sliding_window:
            first = (lens - q_len + 1 - sliding_window).clamp_min(skip)
        self.length = max(int((lens - first).max()), 1) if self.num_seqs else 1
        positions = first + torch.arange(self.length, device=lens.device)  # [num_seqs, length]
        inside = positions < lens
        read = torch.where(inside, positions, first)
        tables = block_tables.long().clamp_min(0)
        blocks = tables.gather(1, read // block_size) if tables.shape[1] else torch.zeros_like(read)
        super().__init__(blocks, read % block_size, block_size)
        queries = lens - q_len + torch.arange(q_len, device=lens.device)  # [num_seqs, q_len]
        visible = inside.unsqueeze(1) & (positions.unsqueeze(1) <= queries.unsqueeze(2))
        if sliding_window:
            visible &= positions.unsqueeze(1) > queries.unsqueeze(2) - sliding_window
        self.visible: Tensor | None = None if bool(visible.all()) else visible  # [num_seqs, q_len, length]
        blind = (lens < 1).flatten()
        self.blind = blind if bool(blind.any()) else None
        self.some_row_sees_nothing = bool((queries < 0).any())
        self._biases: dict[torch.dtype, Tensor] = {}

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """0 where a key is seen and -inf where not, [num_seqs, 1, q_len, length], made once; None: all are seen."""
        if self.visible is None:
            return None
        if dtype not in self._biases:
            zeros = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
            self._biases[dtype] = zeros.masked_fill_(~self.visible, -torch.inf).unsqueeze(1)
        return self._biases[dtype]


class PrefixIndex(CacheRows):
    """The tokens that several sequences have in the same blocks. `blocks` int64 [n], all of them full."""

    def __init__(self, blocks: Tensor, block_size: int) -> None:
        self.length = blocks.shape[0] * block_size
        offsets = torch.arange(block_size, device=blocks.device).repeat(blocks.shape[0])
        super().__init__(blocks.repeat_interleave(block_size), offsets, block_size)


class RaggedIndex:
    """The visible keys of sequences with different numbers of query rows: one `ReadIndex` per sequence."""

    def __init__(
        self,
        block_tables: Tensor,
        query_starts: Sequence[int],
        context_lens: Sequence[int],
        block_size: int,
        sliding_window: int = 0,
    ) -> None:
        self.chunks: list[tuple[int, int, ReadIndex]] = []
        for i, (start, stop) in enumerate(pairwise(query_starts)):
            if stop > start:
                lens = torch.tensor([context_lens[i]], device=block_tables.device)
                index = ReadIndex(block_tables[i : i + 1], lens, stop - start, block_size, sliding_window)
                self.chunks.append((start, stop, index))
