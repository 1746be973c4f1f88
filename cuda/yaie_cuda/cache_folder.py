"""Where compiled kernels are kept, and how files get there without anyone seeing half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`$YAIE_CACHE_DIR/<name>`, else `$XDG_CACHE_HOME/yaie/<name>`, else `~/.cache/yaie/<name>`. It need not exist."""
    own, shared = os.environ.get("YAIE_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    base = Path(own).expanduser() if own else (Path(shared) if shared else Path.home() / ".cache") / "yaie"
    return base / name


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
