"""What was typed in earlier conversations, for the arrow keys. The file is its owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MOST_BYTES = 1 << 20
"""A longer file loses its older half."""


def history_path() -> Path:
    """`$XDG_STATE_HOME/yaie/chat_history`, else below `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    root = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return root / "yaie" / "chat_history"


def open_history(path: Path) -> tuple[History, str | None]:
    """The history in a file of mode 0600 that is made when missing. One in memory, and why, where that cannot be."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(found, "r+b") as file:
            os.fchmod(found, 0o600)
            _trim(file.fileno())
    except OSError as error:
        return InMemoryHistory(), f"no history is kept: {path}: {error.strerror or error}"
    return FileHistory(str(path)), None


def _trim(file: int) -> None:
    """Keep the newer half of a file that has grown too long, from the start of an entry on."""
    size = os.fstat(file).st_size
    if size <= MOST_BYTES:
        return
    newer = os.pread(file, MOST_BYTES // 2, size - MOST_BYTES // 2)
    start = newer.find(b"\n# ")  # each entry begins with its time
    os.ftruncate(file, 0)
    os.pwrite(file, newer[start:] if start >= 0 else b"", 0)
