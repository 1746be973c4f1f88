"""The printable alphabet in which byte-level BPE vocabularies write bytes (GPT-2; Radford et al., 2019)."""

from __future__ import annotations

from functools import cache


@cache
def byte_of_char() -> dict[str, int]:
    """Byte value of each of the 256 characters of the alphabet.

    Printable Latin-1 bytes stand for themselves; the others take code points from 256 on, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def token_to_bytes(token: str) -> bytes:
    """Bytes of a byte-level vocabulary entry; one with any other character stands for its own UTF-8 text."""
    table = byte_of_char()
    try:
        return bytes([table[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")
