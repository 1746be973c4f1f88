"""The body of a record: safetensors, packed and read without a copy under the lock of the interpreter.

The library holds that lock while it copies, some 2 ms for each MiB, and the engine's thread would wait for it; here
torch copies. The format is the library's (a test compares both ways).
"""

from __future__ import annotations

import json
import math

import torch
from torch import Tensor

from .record import Body, DamagedRecordError, room_for

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
MOST_HEADER = 2**22
Shapes = dict[str, tuple[int, ...]]


def pack(named: dict[str, Tensor]) -> memoryview:
    """Tensors on the CPU as safetensors."""
    header: dict[str, object] = {}
    starts, start = [], 0
    for name, tensor in named.items():
        stop = start + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, stop]}
        starts.append(start)
        start = stop
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    body = room_for(8 + len(raw) + start)
    body[: 8 + len(raw)] = len(raw).to_bytes(8, "little") + raw
    for at, tensor in zip(starts, named.values(), strict=True):
        offset = 8 + len(raw) + at
        torch.frombuffer(body, dtype=tensor.dtype, count=tensor.numel(), offset=offset).copy_(tensor.flatten())
    return body


def unpack(body: Body, shapes: Shapes, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a body, which they share. It must hold exactly these, and not a byte more.

    Raises:
        DamagedRecordError: it does not.
    """
    header, begin = _header(body)
    if unknown := header.keys() - shapes.keys():
        raise DamagedRecordError(f"it has data that the model does not know ({len(unknown)} tensors)")
    found, spans = {}, []
    for name, shape in shapes.items():
        count = math.prod(shape)
        start = _start(header.get(name))
        expected = [start, start + count * dtype.itemsize]
        if header.get(name) != {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": expected}:
            raise DamagedRecordError("its data have another shape than the model's KV")
        spans.append((expected[0], expected[1]))
        if begin + expected[1] > len(body):
            raise DamagedRecordError("its data are no safetensors")
        found[name] = torch.frombuffer(body, dtype=dtype, count=count, offset=begin + start).view(shape)
    ends = [0, *(stop for _, stop in sorted(spans))]
    if [start for start, _ in sorted(spans)] != ends[:-1] or begin + ends[-1] != len(body):
        raise DamagedRecordError("its data overlap, or have holes")
    return found


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
