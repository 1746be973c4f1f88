"""Where compiled kernels are kept, and how files get there without anyone seeing half of one."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from collections.abc import Iterator
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


def code_folders(name: str) -> Iterator[Path]:
    """Where builds that are loaded and run may lie, the best first: each exists, and is closed to all but root and us.

    `cache_folder(name)` may be another user's, or on a disk that nothing can be written to: what is built then goes to
    the temporary files.
    """
    for base in (cache_folder, lambda name: _private_folder() / name):
        folder = base(name)
        if _made_private(folder):
            yield folder


def _made_private(folder: Path) -> bool:
    """Whether nobody else can put files into `folder`; it is made, or closed to others, where it is this user's."""
    if not hasattr(os, "getuid"):
        folder.mkdir(parents=True, exist_ok=True)
        return True
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o022:
            folder.chmod(0o700)
        return is_private(folder) and all(_is_kept(parent) for parent in folder.resolve().parents)
    return False


def is_private(path: Path) -> bool:
    """Whether `path` belongs to this user or root, and nobody else may write to it. Raises OSError."""
    found = path.stat()
    return not hasattr(os, "getuid") or (found.st_uid in (0, os.getuid()) and not found.st_mode & 0o022)


def _is_kept(parent: Path) -> bool:
    """Whether not everybody may put another folder in the place of one in `parent`: /tmp has a bit against that."""
    mode = parent.stat().st_mode
    return not mode & 0o002 or bool(mode & stat.S_ISVTX)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path` in one step: readers and other writers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
