"""The private folder through which detached engines are found: a file for each, which only this user can read."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import IO

from yaie_engine.errors import ConfigError, YaieError

LARGEST = 256 * 1024
NOBODY_ELSE = 0o077


def folder_path() -> Path:
    """`$XDG_RUNTIME_DIR/yaie`, or a folder of this machine in the user's cache: a home may be shared by several."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute():
        return Path(runtime) / "yaie"
    from yaie_cuda.cache_folder import cache_folder

    machine = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]
    return cache_folder(f"engines-{machine}")


class PrivateFolder:
    """The folder, open and locked against other processes of this user: `with PrivateFolder() as folder`.

    It is reached through one descriptor, so that what was checked is what is used.

    Raises:
        YaieError: it is a link, or belongs to another user, or others may enter it.
        ConfigError: this system has no such folders.
    """

    def __init__(self) -> None:
        if not hasattr(os, "getuid"):
            raise ConfigError("detached engines need a POSIX system; without --detached the engine loads in the kernel")
        self.path = folder_path()
        self._fd = -1

    def __enter__(self) -> PrivateFolder:
        import fcntl

        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise YaieError(f"the folder {self.path} cannot be used: {error.strerror or error}") from None
        try:
            _check_private(os.fstat(self._fd), f"the folder {self.path}", "700")
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            os.close(self._fd)
            raise YaieError(f"the folder {self.path} cannot be locked: {error.strerror or error}") from None
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import fcntl

        fcntl.flock(self._fd, fcntl.LOCK_UN)  # a process forked meanwhile has the descriptor, too
        os.close(self._fd)

    def names(self, suffix: str) -> list[str]:
        """The names of files that end so, without the ending."""
        return sorted(name.removesuffix(suffix) for name in os.listdir(self._fd) if name.endswith(suffix))

    def read(self, name: str) -> tuple[bytes, float] | None:
        """What a file holds, and when it was touched last (seconds since 1970); None when there is none.

        Raises:
            YaieError: it is a link or no plain file, too large, or another user may have written or read it.
        """
        file = self._open(name)
        if file is None:
            return None
        with file:
            data, touched = file.read(LARGEST + 1), os.fstat(file.fileno()).st_mtime
        if len(data) > LARGEST:
            raise YaieError(f"{self.path / name} is not read: it is larger than {LARGEST} bytes; remove it")
        return data, touched

    def read_end(self, name: str, size: int) -> bytes | None:
        """The last bytes of a file, of whatever length it is; None when there is no file.

        Raises:
            YaieError: as for `read`.
        """
        file = self._open(name)
        if file is None:
            return None
        with file:
            file.seek(-min(size, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read(size)

    def _open(self, name: str) -> IO[bytes] | None:
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise YaieError(f"{self.path / name} is not read: {error.strerror or error}; remove it") from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise YaieError(f"{self.path / name} is not read: it is no plain file; remove it")
            _check_private(found, str(self.path / name), "600")
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise

    def write_new(self, name: str, data: bytes) -> None:
        """Make a file in one step: nobody sees half of it.

        Raises:
            FileExistsError: there is one of that name.
            YaieError: it cannot be written.
        """
        if name in os.listdir(self._fd):  # it stays so: the folder is locked
            raise FileExistsError(name)
        try:
            self._write_new(name, data)
        except OSError as error:
            raise YaieError(f"{self.path / name} cannot be written: {error.strerror or error}") from None

    def _write_new(self, name: str, data: bytes) -> None:
        temporary = f".{secrets.token_hex(8)}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self.remove(temporary)
            raise

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; what had that is gone."""
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def open_log(self, name: str) -> int:
        """A descriptor of a new, empty file of that name.

        Raises:
            YaieError: there can be none.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        try:
            return os.open(name, flags, 0o600, dir_fd=self._fd)
        except OSError as error:
            raise YaieError(f"{self.path / name} cannot be written: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        """Remove a file if it is there.

        Raises:
            YaieError: it is none.
        """
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise YaieError(f"{self.path / name} cannot be removed: {error.strerror or error}") from None


def _check_private(found: os.stat_result, what: str, mode: str) -> None:
    if found.st_uid != os.getuid():
        raise YaieError(f"{what} is not used: it belongs to another user (number {found.st_uid})")
    if found.st_mode & NOBODY_ELSE:
        raise YaieError(
            f"{what} is not used: others may enter it (mode {stat.S_IMODE(found.st_mode):o}); chmod {mode} it"
        )
