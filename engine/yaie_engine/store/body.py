"""The body of a record: safetensors, packed and read without a copy under the lock of the interpreter.

The library holds that lock while it copies, some 2 ms for each MiB, and the engine's thread would wait for it; here
torch copies. The format is the library's (a test compares both ways).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from .record import Body, DamagedRecordError, room_for

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
MOST_HEADER = 2**22


class Slot(NamedTuple):
    """What a body has to say of one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) * self.dtype.itemsize


Slots = dict[str, Slot]


def room(slots: Slots) -> tuple[memoryview, dict[str, Tensor]]:
    """A body of safetensors whose numbers are still to be written, and its tensors, which share its memory."""
    header: dict[str, object] = {}
    starts, stop = {}, 0
    for name, slot in sorted(slots.items(), key=lambda item: -item[1].dtype.itemsize):  # then each lies aligned
        starts[name], stop = stop, stop + slot.num_bytes
        offsets = [starts[name], stop]
        header[name] = {"dtype": DTYPES[slot.dtype], "shape": list(slot.shape), "data_offsets": offsets}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    begin = 8 + len(raw)
    body = room_for(begin + stop)
    body[:begin] = len(raw).to_bytes(8, "little") + raw
    return body, {name: _view(body, slot, begin + starts[name]) for name, slot in slots.items()}


def pack(named: dict[str, Tensor]) -> memoryview:
    """Tensors on the CPU as safetensors."""
    body, tensors = room({name: Slot(tuple(tensor.shape), tensor.dtype) for name, tensor in named.items()})
    for name, tensor in named.items():
        tensors[name].copy_(tensor)
    return body


def unpack(body: Body, slots: Slots, optional: Collection[str] = ()) -> dict[str, Tensor]:
    """The tensors of a body, which they share. It must hold exactly these, and not a byte more.

    Those in `optional` may be missing.

    Raises:
        DamagedRecordError: it does not.
    """
    header, begin = _header(body)
    if unknown := header.keys() - slots.keys():
        raise DamagedRecordError(f"it has data that the model does not know ({len(unknown)} tensors)")
    found, spans = {}, []
    for name, slot in slots.items():
        if name in optional and name not in header:
            continue
        start = _start(header.get(name))
        stop = start + slot.num_bytes
        expected = {"dtype": DTYPES[slot.dtype], "shape": list(slot.shape), "data_offsets": [start, stop]}
        if header.get(name) != expected:
            raise DamagedRecordError("its data have another shape than the model's")
        spans.append((start, stop))
        if begin + stop > len(body):
            raise DamagedRecordError("its data are no safetensors")
        found[name] = _view(body, slot, begin + start)
    ends = [0, *(stop for _, stop in sorted(spans))]
    if [start for start, _ in sorted(spans)] != ends[:-1] or begin + ends[-1] != len(body):
        raise DamagedRecordError("its data overlap, or have holes")
    return found


def _view(body: Body, slot: Slot, offset: int) -> Tensor:
    return torch.frombuffer(body, dtype=slot.dtype, count=slot.num_bytes // slot.dtype.itemsize, offset=offset).view(
        slot.shape
    )


def _header(body: Body) -> tuple[dict[str, object], int]:
    """The description of the tensors, and where their data begin."""
    size = int.from_bytes(body[:8], "little")
    if size % 8 or size > min(MOST_HEADER, len(body) - 8):
        raise DamagedRecordError("its data are no safetensors")
    try:
        header = json.loads(bytes(body[8 : 8 + size]))
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError("its data are no safetensors") from error
    if not isinstance(header, dict):
        raise DamagedRecordError("its data are no safetensors")
    return header, 8 + size


def _start(entry: object) -> int:
    """Where a tensor's data begin; -1 where that is not said."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    start = offsets[0] if isinstance(offsets, list) and offsets else None
    return start if type(start) is int and start >= 0 else -1
