"""The head of a GGUF file, checked before any library reads it: counts and sizes that lie are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from yaie_engine.errors import ModelLoadError

from .tensor_header import damaged

MOST_ENTRIES = 2**17
MOST_STRING = 2**24
MOST_ARRAY = 2**24
MOST_DIMENSIONS = 8
MOST_HEAD = 256 * 2**20
"""Bytes of all entries together: a library keeps them in memory."""
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def screen_gguf(path: Path) -> dict[str, str]:
    """Walk over the whole head of `path`; returns its string entries (architecture, name, licence, ...).

    Raises:
        ModelLoadError: no GGUF file of version 2 or 3, or a head that does not fit the file.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, path).head()
    except OSError as error:
        raise ModelLoadError(f"{path.name} cannot be read: {error.strerror}") from error


class _Reader:
    """Reads forward only and never past the end of the file."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.size = file, path, path.stat().st_size

    def head(self) -> dict[str, str]:
        if self.take(4) != b"GGUF":
            raise ModelLoadError(f"{self.path.name} is no GGUF file")
        version = self.number("<I")
        if version not in (2, 3):
            raise ModelLoadError(f"{self.path.name} is GGUF version {version}; versions 2 and 3 are read")
        num_tensors, num_entries = self.count(MOST_ENTRIES, "<Q"), self.count(MOST_ENTRIES, "<Q")
        strings: dict[str, str] = {}
        for _ in range(num_entries):
            key = self.string()
            kind = self.number("<I")
            if kind == STRING:
                strings[key] = self.string()
            else:
                self.skip_value(kind, 0)
        for _ in range(num_tensors):
            self.tensor()
        return strings

    def tensor(self) -> None:
        name = self.string()
        elements = 1
        for _ in range(self.count(MOST_DIMENSIONS, "<I")):
            elements *= self.number("<Q")
        kind, offset = self.number("<I"), self.number("<Q")
        # Every GGML type takes at least one bit per element.
        if kind > 255 or elements > self.size * 8 or offset > self.size:
            raise ModelLoadError(damaged(self.path, f"tensor {name[:80]!r} does not fit the file"))

    def skip_value(self, kind: int, depth: int) -> None:
        if kind in SCALARS:
            self.skip(SCALARS[kind])
        elif kind == STRING:
            self.skip(self.count(MOST_STRING, "<Q"))
        elif kind == ARRAY and depth == 0:
            inner, length = self.number("<I"), self.count(MOST_ARRAY, "<Q")
            if inner in SCALARS:
                self.skip(SCALARS[inner] * length)
            else:
                for _ in range(length):
                    self.skip_value(inner, depth + 1)
        else:
            raise ModelLoadError(damaged(self.path, f"unknown kind of value {kind}"))

    def string(self) -> str:
        return self.take(self.count(MOST_STRING, "<Q")).decode("utf-8", "replace")

    def count(self, most: int, layout: str) -> int:
        value = self.number(layout)
        if value > most:
            raise ModelLoadError(damaged(self.path, f"a count of {value}, allowed are {most}"))
        return value

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def skip(self, count: int) -> None:
        self.allow(count)
        self.file.seek(count, 1)

    def allow(self, count: int) -> None:
        end = self.file.tell() + count
        if end > self.size:
            raise ModelLoadError(damaged(self.path, "its head is longer than the file"))
        if end > MOST_HEAD:
            raise ModelLoadError(damaged(self.path, f"its head is longer than {MOST_HEAD} bytes"))

    def take(self, count: int) -> bytes:
        self.allow(count)
        data = self.file.read(count)
        if len(data) != count:
            raise ModelLoadError(damaged(self.path, "it ends early"))
        return data
