"""Where compiled kernels are kept, and how files get there without anyone seeing half of one."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`$YAIE_CACHE_DIR/<name>`, else `$XDG_CACHE_HOME/yaie/<name>`, else `~/.cache/yaie/<name>`. It need not exist.

    A user without a home, as in containers that run under any number, has a private folder among the temporary files.
    """
    own, shared = os.environ.get("YAIE_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(own).expanduser() if own else (Path(shared) if shared else Path.home() / ".cache") / "yaie"
    except RuntimeError:  # neither $HOME nor an entry of the user says where home is
        base = _private_folder()
    return base / name


@functools.cache
def _private_folder() -> Path:
    """`/tmp/yaie-<user id>`, which only this user can write to, or else a new folder for this process.

    What lies there is loaded and run: a folder of that name that another user made, or may write to, is not taken.
    """
    if hasattr(os, "getuid"):  # on Windows temporary files are a user's own, and there is always a home
        folder = Path(tempfile.gettempdir()) / f"yaie-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
                return folder
    return Path(tempfile.mkdtemp(prefix="yaie-"))


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` in one step: readers and other writers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
