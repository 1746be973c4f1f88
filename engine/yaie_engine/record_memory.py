"""What recorded decodes keep on a CPU, and up to how many rows that is worth it.

Records take turns in one room, that of the largest; what each keeps for itself is small. One row is recorded at load,
over a cache of one block: others keep as much for each of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from yaie_cuda.cpu.recording import Recording, Room

from .device_errors import out_of_memory
from .graphs import DecodeInputs, cpu_buckets
from .kv_cache import KVCache
from .loaded import LoadedModel
from .memory import gib
from .tiers.flat import FlatTier
from .tiers.make import make_tier

OPERATION_BYTES = 6_000
"""For each recorded operation, and each tensor that a call was given: Python objects, and what allocators lose. The
records of 32 sizes of a 100M Llama made a process grow by 36 MB beside their room."""
SHARE = 16
"""Records may take one part in so many of the room for KV."""
SHORT = "decodes are not recorded: there was no memory to record one"


@dataclass(frozen=True, slots=True)
class RecordSize:
    """One record keeps `own` bytes and `row` for each of its rows; all share `room` for each row of the largest."""

    own: int
    row: int
    room: int

    def of(self, sizes: Sequence[int]) -> int:
        """Bytes of the records of these sizes, ascending."""
        return len(sizes) * self.own + sum(sizes) * self.row + (sizes[-1] * self.room if sizes else 0)


@dataclass(frozen=True, slots=True)
class Records:
    """Up to how many `rows` decodes are recorded, what that may take, and why no larger ones are, if so."""

    rows: int
    num_bytes: int
    fewer: str = ""

    @classmethod
    def within(cls, room: int, size: RecordSize | None, max_num_seqs: int) -> Records:
        """As many sizes as take no more together than their share of the bytes for KV; none where that is unknown."""
        if size is None:
            return cls(0, 0, SHORT)
        wanted = sizes = cpu_buckets(max_num_seqs)
        while sizes and size.of(sizes) * SHARE > room:
            sizes = sizes[:-1]
        if sizes == wanted:
            return cls(sizes[-1], size.of(sizes))
        rows = sizes[-1] if sizes else 0
        which = f"decodes of more than {rows} rows are not recorded" if rows else "decodes are not recorded"
        what = f"{gib(size.of(wanted))} for up to {wanted[-1]} rows would be over 1/{SHARE} of {gib(room)} for KV"
        return cls(rows, size.of(sizes), f"{which}: {what}")


def record_size(loaded: LoadedModel, block_size: int) -> RecordSize | None:
    """What the records of a model keep; nothing where it cannot be recorded, which its first record will say.

    None where memory did not last for one: then what records take is not known, but that there is no room for them.
    """
    try:
        return _measured(loaded, block_size)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
    return None  # outside of the handler: the error's frames keep what was made alive


def _measured(loaded: LoadedModel, block_size: int) -> RecordSize:
    width = -(-loaded.max_model_len // block_size)
    cache = KVCache(1, block_size, loaded.dtype, loaded.device, loaded.backend)
    cache.allocate(loaded.kv_layout)
    tier = make_tier(loaded.tier, loaded.model, cache)
    recording = Recording(Room())
    try:
        if isinstance(tier, FlatTier):
            with torch.inference_mode(), recording.running():
                tier.decode(DecodeInputs(1, width, loaded.device))
    except Exception as error:
        if out_of_memory(error):
            raise
        return RecordSize(0, 0, 0)  # whatever a model does that cannot be captured
    finally:
        tier.close()
        cache.clear()
    own = OPERATION_BYTES * recording.num_operations
    return RecordSize(own, recording.own_bytes + 4 * width, recording.room_bytes)
