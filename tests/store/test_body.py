"""The body of a record is what safetensors writes and reads; what is not exactly expected is damage."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from yaie_engine.store import body as body_module
from yaie_engine.store.body import Slot, pack, room, unpack
from yaie_engine.store.record import Body, DamagedRecordError

NAMED = {"k.0": torch.arange(12.0).view(3, 2, 2), "v.0": torch.arange(5.0, 11.0).view(3, 2, 1)}
SLOTS = {name: Slot(tuple(tensor.shape), tensor.dtype) for name, tensor in NAMED.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_both_ways_as_the_library(dtype: torch.dtype) -> None:
    named = {name: tensor.to(dtype) for name, tensor in NAMED.items()}
    theirs = load(bytes(pack(named)))
    ours = unpack(bytearray(save(named)), {name: Slot(slot.shape, dtype) for name, slot in SLOTS.items()})
    assert theirs.keys() == ours.keys() == named.keys()
    for name, tensor in named.items():
        assert torch.equal(theirs[name], tensor) and torch.equal(ours[name], tensor)


def test_tensors_of_any_order_lie_aligned_and_share_the_body() -> None:
    named = {"a": torch.ones(3, dtype=torch.float16), "b": torch.zeros(2, dtype=torch.float64), "c": torch.ones(5)}
    slots = {name: Slot(tuple(tensor.shape), tensor.dtype) for name, tensor in named.items()}
    assert [slot.num_bytes for slot in slots.values()] == [6, 16, 20]
    body, tensors = room(slots)
    for name, tensor in tensors.items():
        assert tensor.shape == named[name].shape and tensor.dtype == named[name].dtype
        assert tensor.data_ptr() % tensor.dtype.itemsize == 0
        tensor.copy_(named[name] + 1)
    theirs, ours = load(bytes(body)), unpack(body, slots)
    assert all(torch.equal(theirs[name], named[name] + 1) for name in named)
    for name, tensor in ours.items():
        tensor.add_(1)
        assert torch.equal(tensors[name], named[name] + 2)


def test_nothing_is_a_body_too() -> None:
    assert unpack(pack({}), {}) == {}
    with pytest.raises(DamagedRecordError):
        unpack(pack({}), SLOTS)


def test_what_is_optional_may_be_missing_and_is_read_when_it_is_there() -> None:
    alone = pack({"k.0": NAMED["k.0"]})
    assert list(unpack(alone, SLOTS, {"v.0"})) == ["k.0"] and unpack(pack(NAMED), SLOTS, {"v.0"}).keys() == NAMED.keys()
    assert list(unpack(pack({"v.0": NAMED["v.0"]}), SLOTS, {"k.0"})) == ["v.0"]
    with pytest.raises(DamagedRecordError):
        unpack(alone, SLOTS, {"k.0"})
    with pytest.raises(DamagedRecordError):
        unpack(changed(**{"v.0": [1]}), SLOTS, {"v.0"})


def test_a_description_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(NAMED)
    size = int.from_bytes(packed[:8], "little")
    monkeypatch.setattr(body_module, "MOST_HEADER", size)
    assert unpack(packed, SLOTS).keys() == NAMED.keys()
    monkeypatch.setattr(body_module, "MOST_HEADER", size - 1)
    with pytest.raises(DamagedRecordError):
        unpack(packed, SLOTS)


def test_a_library_that_pads_a_description_differently_is_read() -> None:
    packed = pack(NAMED)
    size = int.from_bytes(packed[:8], "little")
    longer = (size + 16).to_bytes(8, "little") + bytes(packed[8 : 8 + size]) + b" " * 16 + bytes(packed[8 + size :])
    found = unpack(bytearray(longer), SLOTS)
    assert all(torch.equal(found[name], tensor) for name, tensor in NAMED.items())


def shifted(packed: Body) -> bytearray:
    """The same with a description that is a byte longer, so that no number lies aligned."""
    size = int.from_bytes(packed[:8], "little")
    return bytearray((size + 1).to_bytes(8, "little") + bytes(packed[8 : 8 + size]) + b" " + bytes(packed[8 + size :]))


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
        changed(**{"k.0": entry(data_offsets=[])}),
        changed(**{"k.0": entry(data_offsets=[-4096, -4048])}),
        changed(**{"k.1": {"dtype": "F32", "shape": [0], "data_offsets": [72, 72]}}),
        shifted(pack(NAMED)),
        changed(**{"k.0": entry(data_offsets=[0])}),
        changed(**{"v.0": entry(shape=[3, 2, 1], data_offsets=[56, 80])}) + bytes(8),  # a hole
        changed(**{"v.0": entry(shape=[3, 2, 1], data_offsets=[24, 48])})[:-24],  # both at the same place
        changed(**{"v.0": entry(shape=[3, 2, 1], data_offsets=[0, 24])})[:-24],
        changed(**{"k.0": None}),
        bytearray(b"\x08\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        bytearray((80_000).to_bytes(8, "little") + b"[" * 80_000),
        bytearray(b"\x10\0\0\0\0\0\0\0{}      "),
        changed(**{"k.0": entry(more=1)}),
        changed(**{"k.0": [1]}),
    ],
)
def test_anything_else_is_damage(body: Body) -> None:
    with pytest.raises(DamagedRecordError):
        unpack(body, SLOTS)
