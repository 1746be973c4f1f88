"""The format of a record: no byte of it can change unnoticed."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from typing import Any

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


# ---- the format, byte by byte


def test_version_1_is_written_like_this() -> None:
    """Who changes a byte of it makes a new version: folders with old records are out there."""
    body = b"body"
    data = record.encode_head(record.head_of("ab" * 32, 12.5, (1, 2, 70000), body))
    meta = b'{"created": 12.5, "identity": "' + b"ab" * 32 + b'"}'
    fixed = b"YAIEKV\r\n" + struct.pack("<IIIIQ", 1, len(meta), 3, 0, 4) + hashlib.sha256(body).digest()
    rest = meta + struct.pack("<III", 1, 2, 70000)
    assert data == fixed + hashlib.sha256(fixed + rest).digest() + rest
    assert record.FIXED_BYTES == len(fixed) + 32 == 96


def test_a_name_is_made_of_version_model_and_tokens() -> None:
    digest = hashlib.sha256(b"1 " + b"ab" * 32 + b" " + struct.pack("<III", 1, 2, 70000)).hexdigest()
    assert record.content_name("ab" * 32, (1, 2, 70000)) == f"{'ab' * 8}-{digest[:32]}"


def test_numbers_are_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "big" if sys.byteorder == "little" else "little"
    assert record._pack([1, 2**31]) == b"\1\0\0\0\0\0\0\x80" and record._unpack(b"\1\0\0\0\0\0\0\x80") == (1, 2**31)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "byteorder", other)
        packed, unpacked = record._pack([1]), record._unpack(b"\0\0\0\1")
    assert packed == b"\0\0\0\1" and unpacked == (1,)


def fixed_part(magic: bytes = b"YAIEKV\r\n", version: int = 1, meta: int = 99, tokens: int = 3, more: int = 0) -> bytes:
    return struct.pack("<8sIIIIQ", magic, version, meta, tokens, more, 4) + bytes(64)


@pytest.mark.parametrize(("meta", "tokens"), [(99, 3), (4096, 3), (99, 2**22), (0, 1)])
def test_what_follows_the_fixed_part_is_counted(meta: int, tokens: int) -> None:
    assert record.rest_of_head(fixed_part(meta=meta, tokens=tokens)) == meta + 4 * tokens


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"meta": 4097}, "damaged"),
        ({"tokens": 2**22 + 1}, "damaged"),
        ({"tokens": 0}, "damaged"),
        ({"more": 1}, "damaged"),
        ({"magic": b"YAIEKV\n\n"}, "no record"),
        ({"version": 0}, "format version 0"),
    ],
)
def test_a_fixed_part_beyond_the_limits_is_refused(wrong: dict[str, Any], why: str) -> None:
    """Before anything is read or made by what it says."""
    with pytest.raises(DamagedRecordError, match=why):
        record.rest_of_head(fixed_part(**wrong))
    with pytest.raises(DamagedRecordError, match="ends within"):
        record.rest_of_head(fixed_part()[:-1])
    with pytest.raises(DamagedRecordError, match="ends within"):
        record.rest_of_head(fixed_part() + b"\0")


@pytest.mark.parametrize(
    "meta",
    [
        b'{"created": 12.5, "identity": "%s", "more": 1}',
        b'{"identity": "%s", "created": 12.5}',
        b'{"created":12.5,"identity":"%s"}',
        b'{"created": 12.50, "identity": "%s"}',
        b'{"created": 12, "identity": "%s"}',
        b'{"created": 12.5, "identity": 7}',
        b'{"created": 12.5}',
        b'{"identity": "%s"}',
        b'["%s"]',
        b"\xff\xfe",
        b"[" * 3000,
    ],
)
def test_meta_has_one_form_alone(meta: bytes) -> None:
    """With sums that are right."""
    meta = meta.replace(b"%s", b"ab" * 32)
    rest = meta + struct.pack("<I", 5)
    fixed = struct.pack("<8sIIIIQ32s", b"YAIEKV\r\n", 1, len(meta), 1, 0, 4, hashlib.sha256(b"body").digest())
    with pytest.raises(DamagedRecordError, match="cannot be read"):
        record.decode_head(fixed + hashlib.sha256(fixed + rest).digest(), rest)


def test_a_head_that_was_cut_says_so() -> None:
    fixed, rest = whole()[:FIXED_BYTES], whole()[FIXED_BYTES : -len(BODY)]
    for wrong in (rest[:-1], rest + b"\0"):
        with pytest.raises(DamagedRecordError, match="ends within its head"):
            record.decode_head(fixed, wrong)


def test_a_body_is_checked_by_length_and_by_sum() -> None:
    head = record.head_of("ab" * 32, 12.5, IDS, BODY)
    record.check_body(head, BODY)
    with pytest.raises(DamagedRecordError, match="instead of"):
        record.check_body(head, BODY + b"\0")
    with pytest.raises(DamagedRecordError, match="checksum of its data"):
        record.check_body(head, BODY[:-1] + b"\0")


@pytest.mark.parametrize("count", [0, 1, 5, 5000])
def test_room_is_for_exactly_so_many_bytes(count: int) -> None:
    assert len(record.room_for(count)) == count


@pytest.mark.parametrize("size", [0, 1, 3, 5000])
def test_the_room_for_a_body_has_its_size(size: int) -> None:
    room = record.room_for(size)
    assert len(room) == size and not any(room) and not room.readonly
