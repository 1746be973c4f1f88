"""The format of a record: no byte of it can change unnoticed."""

from __future__ import annotations

import random
import struct

import pytest

from yaie_engine.store import record
from yaie_engine.store.record import FIXED_BYTES, DamagedRecordError, Head

BODY = bytes(range(256)) * 6
IDS = tuple(range(5, 105))


def whole() -> bytes:
    return record.encode_head(record.head_of("ab" * 32, 12.5, IDS, BODY)) + BODY


def decode(data: bytes) -> tuple[Head, bytes]:
    fixed = data[:FIXED_BYTES]
    end = FIXED_BYTES + record.rest_of_head(fixed)
    head = record.decode_head(fixed, data[FIXED_BYTES:end])
    record.check_body(head, data[end:])
    return head, data[end:]


def test_what_is_written_is_read() -> None:
    head, body = decode(whole())
    assert (head.identity, head.created, head.token_ids, body) == ("ab" * 32, 12.5, IDS, BODY)
    assert head.num_bytes + len(body) == len(whole())


def test_cut_anywhere_it_is_refused() -> None:
    data = whole()
    for length in range(len(data)):
        with pytest.raises(DamagedRecordError):
            decode(data[:length])
    with pytest.raises(DamagedRecordError):
        decode(data + b"\0")


def test_a_changed_byte_anywhere_is_refused() -> None:
    data, rng = whole(), random.Random(7)
    for position in range(len(data)):
        with pytest.raises(DamagedRecordError):
            decode(data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :])


def test_another_version_is_named() -> None:
    data = bytearray(whole())
    struct.pack_into("<I", data, 8, 2)
    with pytest.raises(DamagedRecordError, match="format version 2, this is version 1"):
        decode(bytes(data))


def test_names_tell_models_and_prefixes_apart() -> None:
    name = record.content_name("ab" * 32, IDS)
    assert name == record.content_name("ab" * 32, list(IDS))
    assert name != record.content_name("ac" * 32, IDS) and name != record.content_name("ab" * 32, IDS[1:])


@pytest.mark.parametrize("identity", ["\ud800" * 64, "ab", "AB" * 32, "ab" * 32 + "\n"])
def test_a_foreign_identity_is_damage(identity: str) -> None:
    """With sums that are right, as whoever knows the format can make them."""
    with pytest.raises(DamagedRecordError):
        decode(record.encode_head(record.head_of(identity, 12.5, IDS, BODY)) + BODY)


def test_a_time_that_is_no_float_is_damage() -> None:
    data = record.encode_head(record.head_of("ab" * 32, 10**400, IDS, BODY)) + BODY
    with pytest.raises(DamagedRecordError):
        decode(data)
