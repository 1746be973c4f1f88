"""The folder of the store: private files that are written whole or not at all. Imports no torch.

A file is written under a temporary name, synced, renamed, and the folder is synced; nothing follows a link. Several
processes may share a folder: who writes a temporary file holds a lock on it, which ends with the process, so that the
next one to open the folder knows an orphan.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from yaie_engine.errors import StoreError
from yaie_engine.fault_points import fault_point

from .record import (
    FIXED_BYTES,
    Body,
    DamagedRecordError,
    Head,
    check_sum,
    content_name,
    decode_head,
    encode_head,
    rest_of_head,
    room_for,
)

NAME = re.compile(r"(?P<content>[0-9a-f]{16}-[0-9a-f]{32})(?P<pinned>\.pinned)?\.kv")
PINNED, ENDING, TEMPORARY, DAMAGED = ".pinned", ".kv", "tmp-", ".damaged"
_OURS = re.compile(f"{NAME.pattern}({re.escape(DAMAGED)})?")
Reader = Callable[[int], bytes]
SLICE = 2**21
"""Bytes that are read before their sum is begun."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file of the folder; `used` is when it was last read or written, in seconds since 1970."""

    name: str
    num_bytes: int
    used: float

    @property
    def content(self) -> str:
        """What the name says of its content; "" where it is no record."""
        found = NAME.fullmatch(self.name)
        return found["content"] if found else ""

    @property
    def pinned(self) -> bool:
        """Whether it stays when room is needed."""
        return self.name.endswith(PINNED + ENDING)


class RecordFolder:
    """Records under names that we computed. `limit` bounds the bytes of all files together. Any thread."""

    def __init__(self, path: str, limit: int) -> None:
        """Make the folder where it is missing, and sweep what interrupted writers have left.

        Raises:
            StoreError: it is no folder, a link, or open to other users; the text says what to do.
        """
        self.path, self.limit = Path(path).expanduser().absolute(), limit
        self._fd = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            self._fd = os.open(self.path, _FLAGS | getattr(os, "O_DIRECTORY", 0))
            self._check_private()
        except OSError as error:
            self.close()
            why = "a link is not followed" if error.errno == errno.ELOOP else error.strerror
            raise StoreError(f"prefix_store={path!r}: {why}; give a folder of your own") from error
        except StoreError:
            self.close()
            raise
        with contextlib.suppress(OSError):
            self._sweep()

    def close(self) -> None:
        """Let go of the folder. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # ---- reading

    @property
    def changed(self) -> int:
        """A number that changes when a file comes, goes or gets another name; -1 where nobody can tell."""
        try:
            return os.fstat(self._fd).st_mtime_ns
        except OSError:
            return -1

    def files(self) -> list[FileInfo]:
        """Our regular files, least recently used first; what another process is writing is left out.

        What else lies in the folder belongs to its user: it is neither counted nor ever removed.
        """
        found = []
        for name in filter(_OURS.fullmatch, os.listdir(self._fd)):
            with contextlib.suppress(OSError):
                about = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    found.append(FileInfo(name, about.st_size, about.st_mtime))
        return sorted(found, key=lambda file: (file.used, file.name))

    def head(self, name: str) -> Head:
        """The head of a record.

        Raises:
            DamagedRecordError: it is damaged, or has another name than its content.
            OSError: it cannot be read.
        """
        with os.fdopen(self._open(name), "rb") as file:
            return self._head(name, file.read, os.fstat(file.fileno()).st_size)

    def read(self, name: str) -> tuple[Head, memoryview]:
        """A whole record, which now counts as used.

        Raises:
            DamagedRecordError: a byte of it is not as it was written.
            OSError: it cannot be read.
        """
        with os.fdopen(self._open(name), "rb", buffering=0) as file:
            head = self._head(name, lambda count: bytes(_read_all(file, count)), os.fstat(file.fileno()).st_size)
            fault_point("store read", name)
            body, body_sum = _read_and_sum(file, head.body_bytes)
        check_sum(head, len(body), body_sum)
        with contextlib.suppress(OSError):
            os.utime(name, dir_fd=self._fd, follow_symlinks=False)
        return head, body

    def _open(self, name: str) -> int:
        if not NAME.fullmatch(name):
            raise DamagedRecordError("its name is not one of ours")
        fd = os.open(name, _FLAGS, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise DamagedRecordError("it is no file")
        return fd

    def _head(self, name: str, read: Reader, num_bytes: int) -> Head:
        fixed = read(FIXED_BYTES)
        head = decode_head(fixed, read(rest_of_head(fixed)))
        if head.num_bytes + head.body_bytes != num_bytes:
            raise DamagedRecordError(f"it has {num_bytes} bytes instead of {head.num_bytes + head.body_bytes}")
        if not name.startswith(content_name(head.identity, head.token_ids)):
            raise DamagedRecordError("it lies under the name of another record")
        return head

    # ---- writing

    def write(self, head: Head, body: Body, *, pinned: bool = False) -> str:
        """Write a record and give its name. Others that were used longest ago make room, pinned ones never.

        Raises:
            StoreError: it is larger than what the limit leaves.
            OSError: the disk is full, or fails otherwise. No part of the record is left.
        """
        start = encode_head(head)
        content = content_name(head.identity, head.token_ids)
        self.make_room(len(start) + len(body), keep=content)
        pinned = pinned or any(file.pinned and file.content == content for file in self.files())
        name = content + (PINNED if pinned else "") + ENDING
        try:
            self._write(name, start, body)
        except FileNotFoundError:  # somebody swept it between the making and the locking of it
            self._write(name, start, body)
        if pinned:
            self._remove(content + ENDING)
        return name

    def _write(self, name: str, start: bytes, body: Body) -> None:
        temporary = TEMPORARY + secrets.token_hex(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # the last follows no link either
        fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
        try:
            try:
                _lock(fd)
                _write_all(fd, start)
                fault_point("store write", name)
                _write_all(fd, body)
                os.fsync(fd)
                os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            finally:
                os.close(fd)
        except BaseException:
            self._remove(temporary)
            raise
        os.fsync(self._fd)

    def make_room(self, num_bytes: int, keep: str = "") -> None:
        """Remove what was used longest ago until `num_bytes` more fit; `keep` is the content that they replace.

        Raises:
            StoreError: what is pinned leaves less.
        """
        files = [file for file in self.files() if not keep or file.content != keep]
        total = sum(file.num_bytes for file in files)
        fixed = sum(file.num_bytes for file in files if file.pinned)
        if fixed + num_bytes > self.limit:
            raise StoreError(
                f"a record of {_mib(num_bytes)} does not fit: {_mib(fixed)} of {_mib(self.limit)} are pinned; "
                "unpin some, or raise prefix_store_gib"
            )
        for file in files:
            if total + num_bytes <= self.limit:
                return
            if not file.pinned:
                self._remove(file.name)
                total -= file.num_bytes

    def pin(self, file: FileInfo, pinned: bool) -> str:
        """Give a record the name that says whether it is pinned."""
        name = file.content + (PINNED if pinned else "") + ENDING
        if name != file.name:
            os.rename(file.name, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
        return name

    def names(self, name: str) -> list[str]:
        """The names that this record may have, pinned and not: processes that meet may leave it under both."""
        content = name.removesuffix(ENDING).removesuffix(PINNED)
        return [content + ENDING, content + PINNED + ENDING]

    def remove(self, names: Iterable[str]) -> int:
        """Remove files; how many of them were there."""
        return sum([self._remove(name) for name in names])

    def set_aside(self, name: str) -> None:
        """Give a damaged record a name under which nobody reads it; it makes room like any other."""
        with contextlib.suppress(OSError):
            os.rename(name, name + DAMAGED, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _remove(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self._fd)
        except OSError:
            return False
        return True

    # ---- opening

    def _check_private(self) -> None:
        about = os.fstat(self._fd)
        if not hasattr(os, "getuid"):
            return
        if about.st_uid != os.getuid():
            raise StoreError(
                f"prefix_store={str(self.path)!r}: the folder belongs to another user; give one of your own"
            )
        if stat.S_IMODE(about.st_mode) & 0o077:
            if os.listdir(self._fd):
                raise StoreError(
                    f"prefix_store={str(self.path)!r}: others may read or write the folder, and a store holds what was "
                    f"asked; chmod 700 {self.path}"
                )
            os.fchmod(self._fd, 0o700)

    def _sweep(self) -> None:
        for name in os.listdir(self._fd):
            if name.startswith(TEMPORARY):
                with contextlib.suppress(OSError):
                    fd = os.open(name, _FLAGS, dir_fd=self._fd)
                    try:
                        _lock(fd)
                        self._remove(name)
                    finally:
                        os.close(fd)


def _lock(fd: int) -> None:
    """Raises OSError where somebody else holds it. Where the system has no such locks every temporary file is ours."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write_all(fd: int, data: Body) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_all(file: FileIO, count: int) -> memoryview:
    """`count` bytes, or as many as there are."""
    view, done = room_for(count), 0
    while done < count and (more := file.readinto(view[done:])):
        done += more
    return view[:done]


def _read_and_sum(file: FileIO, count: int) -> tuple[memoryview, bytes]:
    """`count` bytes, or as many as there are, and their SHA-256: one slice is summed while the next is read."""
    view, done, digest = room_for(count), 0, hashlib.sha256()
    with ThreadPoolExecutor(1, "yaie-prefix-sum") as summing:
        while done < count and (more := file.readinto(view[done : done + SLICE])):
            summing.submit(digest.update, view[done : done + more])
            done += more
    return view[:done], digest.digest()


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
