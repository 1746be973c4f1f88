"""The targets that read records of the prefix store: KV, and whole states."""

from __future__ import annotations

import hashlib
import struct

import torch

from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.states.copying import tensors_in
from yaie_engine.states.schema import Dimension, Part, StateSchema
from yaie_engine.store.body import Slot
from yaie_engine.store.kv import from_body
from yaie_engine.store.record import (
    FIXED_BYTES,
    DamagedRecordError,
    Head,
    check_body,
    decode_head,
    encode_head,
    rest_of_head,
)

LAYOUT = KVLayout((LayerLayout(0, 1, 2, 2), LayerLayout(3, 1, 2, 1)))
GROWS = (Dimension(1, False), Dimension(-1, True), Dimension(2, False))
SCHEMA = StateSchema(
    {"conv": [torch.empty(0)], "keys": torch.empty(0), "seen": True, "count": 0},
    (Part("conv.0", (Dimension(3, False),), torch.bfloat16), Part("keys", GROWS, torch.float32)),
    {"count": 2},
    "",
    Slot((1, 4), torch.float32),
)


def store_record(data: bytes) -> None:
    """What passes is written in the one way there is, and its KV has the model's shape.

    Odd first byte: all sums are made right first, as whoever knows the format can, so that more than they are tested.
    """
    try:
        head, body = _read(data)
        kv = from_body(body, len(head.token_ids), LAYOUT, torch.float32)
    except DamagedRecordError as error:
        assert "\n" not in str(error)
        return
    assert sorted(kv) == [0, 3] and kv[3][1].shape == (len(head.token_ids), 1, 1)
    assert sum(tensor.nbytes for pair in kv.values() for tensor in pair) <= len(body)


def store_state(data: bytes) -> None:
    """The same for whole states: what passes has the model's shapes, and all that is no tensor is the model's own."""
    try:
        head, body = _read(data)
        state, logits = SCHEMA.state(body, len(head.token_ids))
    except DamagedRecordError as error:
        assert "\n" not in str(error)
        return
    assert isinstance(state, dict) and list(state) == ["conv", "keys", "seen", "count"] and state["seen"] is True
    assert state["keys"].shape == (1, len(head.token_ids) - 1, 2) and state["conv"][0].dtype == torch.bfloat16
    assert logits is None or logits.shape == (1, 4)
    assert sum(tensor.nbytes for tensor in tensors_in(state)) <= len(body)
    assert state["count"] == len(head.token_ids) + 2  # type: ignore[index]


def _read(data: bytes) -> tuple[Head, bytearray]:
    """The head and the body of a record whose sums are right.

    Raises:
        DamagedRecordError: they are not.
    """
    raw = _sealed(data[1:]) if data[:1] and data[0] % 2 else data[1:]
    fixed = raw[:FIXED_BYTES]
    end = FIXED_BYTES + rest_of_head(fixed)
    head, body = decode_head(fixed, raw[FIXED_BYTES:end]), bytearray(raw[end:])
    check_body(head, body)
    assert encode_head(head) + body == raw and head.num_bytes == end and 0 < len(head.token_ids) <= len(raw)
    return head, body


def _sealed(raw: bytes) -> bytes:
    """The record with its sums and the length of its body as they should be."""
    if len(raw) < FIXED_BYTES:
        return raw
    meta_bytes, num_tokens = struct.unpack_from("<II", raw, 12)
    end = FIXED_BYTES + meta_bytes + 4 * num_tokens
    body = raw[end:]
    fixed = raw[:24] + struct.pack("<Q", len(body)) + hashlib.sha256(body).digest()
    return fixed + hashlib.sha256(fixed + raw[FIXED_BYTES:end]).digest() + raw[FIXED_BYTES:]
