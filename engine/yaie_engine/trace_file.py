"""The file of a trace: opened once, private, and never waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def opened(path: str | Path, flags: int = 0) -> int:
    """A descriptor for writing; the file is its owner's alone, also one that was there. A pipe is not waited for."""
    flags |= os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags, 0o600)
    try:
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and stat.S_IMODE(about.st_mode) & 0o077:
            os.fchmod(fd, 0o600)
    except OSError:
        os.close(fd)
        raise
    return fd


class TraceFile:
    """Takes lines for as long as what was opened is there. Its path is not looked at again: who puts another file or a
    link in its place gets nothing. Ends with its last reference.

    Raises:
        OSError: it cannot be opened or written, or is a link.
    """

    def __init__(self, path: str | Path) -> None:
        self._fd = opened(path, os.O_TRUNC | NO_LINK)

    def write(self, lines: list[str]) -> None:
        """Add these lines.

        Raises:
            OSError: the file was removed, the disk is full, or the reader of a pipe is gone or slow.
        """
        about = os.fstat(self._fd)
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
            raise FileNotFoundError("its file was removed")
        left = memoryview("".join(f"{line}\n" for line in lines).encode())
        while left:
            left = left[os.write(self._fd, left) :]

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)
