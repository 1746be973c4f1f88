"""The body of a record is what safetensors writes and reads; what is not exactly expected is damage."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from yaie_engine.store.body import Slot, pack, unpack
from yaie_engine.store.record import Body, DamagedRecordError

NAMED = {"k.0": torch.arange(12.0).view(3, 2, 2), "v.0": torch.arange(5.0, 11.0).view(3, 2, 1)}
SLOTS = {name: Slot(tuple(tensor.shape), tensor.dtype) for name, tensor in NAMED.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_both_ways_as_the_library(dtype: torch.dtype) -> None:
    named = {name: tensor.to(dtype) for name, tensor in NAMED.items()}
    theirs = load(bytes(pack(named)))
    ours = unpack(bytearray(save(named)), {name: Slot(slot.shape, dtype) for name, slot in SLOTS.items()})
    assert theirs.keys() == ours.keys() == named.keys()
    for name, tensor in named.items():
        assert torch.equal(theirs[name], tensor) and torch.equal(ours[name], tensor)


def changed(**entries: Any) -> bytearray:
    body = bytearray(pack(NAMED))
    size = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + size]) | entries
    raw = json.dumps({name: entry for name, entry in header.items() if entry is not None}).encode()
    raw += b" " * (-len(raw) % 8)
    return bytearray(len(raw).to_bytes(8, "little") + raw + body[8 + size :])


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [3, 2, 2], "data_offsets": [0, 48], **changes}


@pytest.mark.parametrize(
    "body",
    [
        bytearray(),
        bytearray(b"\xff" * 40),
        bytearray(b"\x08\0\0\0\0\0\0\0[[[[[[[["),
        bytearray(b"\x08\0\0\0\0\0\0\0[]      "),
        bytearray(b"\x09\0\0\0\0\0\0\0{}       "),
        pack(NAMED)[:-1],
        bytearray(pack(NAMED)) + b"\0",
        pack({**NAMED, "k.1": torch.zeros(1)}),
        pack({"k.0": NAMED["k.0"]}),
        changed(**{"k.0": entry(dtype="BF16")}),
        changed(**{"k.0": entry(shape=[3, 4, 1])}),
        changed(**{"k.0": entry(data_offsets=[24, 72])}),
        changed(**{"k.0": entry(data_offsets=[0.0, 48.0])}),
        changed(**{"k.0": entry(data_offsets=[False, 48])}),
        changed(**{"k.0": entry(data_offsets=[-48, 0])}),
        changed(**{"k.0": entry(data_offsets=[2**70, 2**70 + 48])}),
        changed(**{"k.0": entry(data_offsets=7)}),
        changed(**{"k.0": entry(more=1)}),
        changed(**{"k.0": [1]}),
    ],
)
def test_anything_else_is_damage(body: Body) -> None:
    with pytest.raises(DamagedRecordError):
        unpack(body, SLOTS)
