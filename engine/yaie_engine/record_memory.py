"""What recorded decodes keep on a CPU, and up to how many rows that is worth it.

A record keeps every intermediate result of its step, each size its own; run eagerly they are forgotten at once. One row
is recorded at load, over a cache of one block: others keep as much for each of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from yaie_cuda.cpu.recording import Recording

from .graphs import MOST_ON_CPU, DecodeInputs
from .kv_cache import KVCache
from .loaded import LoadedModel
from .memory import gib
from .tiers.flat import FlatTier
from .tiers.make import make_tier

OPERATION_BYTES = 2_000
"""Of Python objects for each recorded operation: tensors, arguments, addresses."""
SHARE = 16
"""Records may take one part in so many of the room for KV."""


@dataclass(frozen=True, slots=True)
class RecordSize:
    """One record keeps `own` bytes and `row` for each of its rows."""

    own: int
    row: int

    def of(self, rows: int) -> int:
        """Bytes of the record of so many rows."""
        return self.own + rows * self.row

    def up_to(self, rows: int) -> int:
        """Bytes of the records of 1, 2, ... and `rows` rows."""
        return rows * self.own + rows * (rows + 1) // 2 * self.row


@dataclass(frozen=True, slots=True)
class Records:
    """Up to how many `rows` decodes are recorded, what that may take, and why no larger ones are, if so."""

    rows: int
    num_bytes: int
    fewer: str = ""

    @classmethod
    def within(cls, room: int, size: RecordSize, max_num_seqs: int) -> Records:
        """As many sizes as take no more together than their share of the bytes for KV."""
        wanted = rows = min(max_num_seqs, MOST_ON_CPU)
        while rows and size.up_to(rows) * SHARE > room:
            rows -= 1
        if rows == wanted:
            return cls(rows, size.up_to(rows))
        which = f"decodes of more than {rows} rows are not recorded" if rows else "decodes are not recorded"
        what = f"{gib(size.up_to(wanted))} for up to {wanted} rows would be over 1/{SHARE} of {gib(room)} for KV"
        return cls(rows, size.up_to(rows), f"{which}: {what}")


def record_size(loaded: LoadedModel, block_size: int) -> RecordSize:
    """What the records of a model keep; nothing where it cannot be recorded, which its first record will say."""
    width = -(-loaded.max_model_len // block_size)
    cache = KVCache(1, block_size, loaded.dtype, loaded.device, loaded.backend)
    cache.allocate(loaded.kv_layout)
    tier = make_tier(loaded.tier, loaded.model, cache)
    recording = Recording()
    try:
        if isinstance(tier, FlatTier):
            with torch.inference_mode(), recording.running():
                tier.decode(DecodeInputs(1, width, loaded.device))
    except Exception:  # whatever a model does that cannot be captured
        return RecordSize(0, 0)
    finally:
        tier.close()
        cache.clear()
    return RecordSize(OPERATION_BYTES * recording.num_operations, recording.num_bytes + 4 * width)
