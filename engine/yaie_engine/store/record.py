"""The format of one record: a checked head that says whose KV this is, and a checked body of safetensors.

    magic 8 | version u32 | meta bytes u32 | tokens u32 | reserved u32 | body bytes u64 | sha256 of body
    sha256 of head | meta (JSON: identity, created) | token ids, u32 each | body

All numbers are little-endian. The head's sum covers everything before the body but itself, so the sum of the body, too.
A reader takes nothing from a record before both sums agree. Imports no torch.
"""

from __future__ import annotations

import array
import hashlib
import json
import mmap
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from yaie_engine.errors import StoreError

MAGIC, VERSION = b"YAIEKV\r\n", 1
MOST_META, MOST_TOKENS = 4096, 2**22
_FIXED = struct.Struct("<8sIIIIQ32s")
_SUM = 32
_IDENTITY = re.compile("[0-9a-f]{64}")
FIXED_BYTES = _FIXED.size + _SUM
Body = bytes | bytearray | memoryview


class DamagedRecordError(StoreError):
    """A record that is not what was once written, or was written by another version."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a record says before its body. `identity` names model, dtype and layout; `created` is seconds since 1970."""

    identity: str
    created: float
    token_ids: tuple[int, ...]
    body_bytes: int
    body_sum: bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of the head itself."""
        return FIXED_BYTES + len(_meta(self)) + 4 * len(self.token_ids)


def content_name(identity: str, token_ids: Sequence[int]) -> str:
    """The name of a record without its ending: model, then content, 16 and 32 hex digits. An index, never a proof."""
    digest = hashlib.sha256(f"{VERSION} {identity} ".encode())
    digest.update(_pack(token_ids))
    return f"{identity[:16]}-{digest.hexdigest()[:32]}"


def head_of(identity: str, created: float, token_ids: Sequence[int], body: Body) -> Head:
    """The head of a record with this body."""
    return Head(identity, created, tuple(token_ids), len(body), hashlib.sha256(body).digest())


def encode_head(head: Head) -> bytes:
    """The bytes before the body."""
    meta = _meta(head)
    fixed = _FIXED.pack(MAGIC, VERSION, len(meta), len(head.token_ids), 0, head.body_bytes, head.body_sum)
    rest = meta + _pack(head.token_ids)
    return fixed + hashlib.sha256(fixed + rest).digest() + rest


def rest_of_head(fixed: bytes) -> int:
    """How many bytes of a head follow its fixed part.

    Raises:
        DamagedRecordError: this is no head of a record of this version.
    """
    if len(fixed) != FIXED_BYTES:
        raise DamagedRecordError("it ends within its head")
    magic, version, meta_bytes, num_tokens, reserved, _, _ = _FIXED.unpack(fixed[: _FIXED.size])
    if magic != MAGIC:
        raise DamagedRecordError("it is no record")
    if version != VERSION:
        raise DamagedRecordError(f"it has format version {version}, this is version {VERSION}")
    if reserved or meta_bytes > MOST_META or not 0 < num_tokens <= MOST_TOKENS:
        raise DamagedRecordError("its head is damaged")
    return int(meta_bytes + 4 * num_tokens)


def decode_head(fixed: bytes, rest: bytes) -> Head:
    """The head in `fixed` and the `rest_of_head` bytes after it.

    Raises:
        DamagedRecordError: a byte of it is not as it was written.
    """
    if len(rest) != rest_of_head(fixed):
        raise DamagedRecordError("it ends within its head")
    plain, told = fixed[: _FIXED.size], fixed[_FIXED.size :]
    if hashlib.sha256(plain + rest).digest() != told:
        raise DamagedRecordError("the checksum of its head is wrong")
    _, _, meta_bytes, _, _, body_bytes, body_sum = _FIXED.unpack(plain)
    try:
        meta = json.loads(rest[:meta_bytes])
        identity, created = meta["identity"], meta["created"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedRecordError("its head cannot be read") from error
    if not isinstance(identity, str) or not _IDENTITY.fullmatch(identity) or not isinstance(created, float):
        raise DamagedRecordError("its head cannot be read")
    head = Head(identity, created, _unpack(rest[meta_bytes:]), body_bytes, body_sum)
    if _meta(head) != rest[:meta_bytes]:  # one way to write it: then the size of a head follows from what it says
        raise DamagedRecordError("its head cannot be read")
    return head


def room_for(num_bytes: int) -> memoryview:
    """Memory for a body. The system gives it where it is first written, which does not hold the interpreter."""
    return memoryview(mmap.mmap(-1, max(1, num_bytes)))[:num_bytes]


def check_body(head: Head, body: Body) -> None:
    """Raises DamagedRecordError unless `body` is the one that `head` was written with."""
    check_sum(head, len(body), hashlib.sha256(body).digest())


def check_sum(head: Head, num_bytes: int, body_sum: bytes) -> None:
    """As `check_body`, of a body of so many bytes whose SHA-256 is known."""
    if num_bytes != head.body_bytes:
        raise DamagedRecordError(f"it has {num_bytes} bytes of data instead of {head.body_bytes}")
    if body_sum != head.body_sum:
        raise DamagedRecordError("the checksum of its data is wrong")


def _meta(head: Head) -> bytes:
    return json.dumps({"created": head.created, "identity": head.identity}).encode()


def _pack(token_ids: Sequence[int]) -> bytes:
    ids = array.array("I", token_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def _unpack(data: bytes) -> tuple[int, ...]:
    ids = array.array("I")
    ids.frombytes(data)
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)
