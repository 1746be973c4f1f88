"""Server-sent events from bytes, whatever a server sends: lines of any length, broken text, comments without end."""

from __future__ import annotations

from collections.abc import Iterator

from .faults import RemoteError

LONGEST_LINE = 32 * 2**20
"""A prompt of a million token ids is one line."""


class EventReader:
    """Takes bytes as they come and gives the data of each event."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False

    def push(self, piece: bytes) -> Iterator[str]:
        """The data of the events that are whole now. Text that is no UTF-8 holds U+FFFD.

        Raises:
            RemoteError: an event is longer than any that is expected.
        """
        start = 0
        while start < len(piece):
            if self._after_return and piece[start : start + 1] == b"\n":  # the second half of \r\n
                self._after_return = False
                start += 1
                continue
            self._after_return = False
            end = _line_end(piece, start)
            self._line += piece[start : len(piece) if end < 0 else end]
            if self._size + len(self._line) > LONGEST_LINE:
                raise RemoteError(f"an event of more than {LONGEST_LINE >> 20} MiB is not read")
            if end < 0:
                return
            self._after_return = piece[end : end + 1] == b"\r"
            start = end + 1
            line, self._line = bytes(self._line), bytearray()
            found = self._take(line)
            if found is not None:
                yield found

    def _take(self, line: bytes) -> str | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return b"\n".join(data).decode("utf-8", "replace") if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value) + 1
        return None


def _line_end(piece: bytes, start: int) -> int:
    """Where the line that begins at `start` ends; -1: not in this piece."""
    feed = piece.find(b"\n", start)
    back = piece.find(b"\r", start, len(piece) if feed < 0 else feed)
    return feed if back < 0 else back
