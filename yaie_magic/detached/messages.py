"""What a starting engine says to the process that waits for it: lines of JSON through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from yaie_engine import errors
from yaie_engine.errors import YaieError
from yaie_magic.options import UsageProblem

KINDS: dict[str, type[YaieError]] = {
    kind.__name__: kind
    for kind in (
        errors.ConfigError,
        errors.CapacityError,
        errors.ModelLoadError,
        errors.UnknownModelError,
        errors.DeviceMemoryError,
        UsageProblem,
    )
}
"""Errors that arrive as what they were; the others do as a YaieError that names their kind."""


class Speaker:
    """The end of the starting engine. Says nothing any more after its last word, or when nobody listens."""

    def __init__(self, descriptor: int) -> None:
        self._fd: int | None = descriptor

    def stage(self, what: str, share: float | None) -> None:
        """How far the load is; `share` of this stage from 0 to 1."""
        self._say({"stage": what, "share": share})

    def ready(self) -> None:
        """The last word: it serves."""
        self._say({"ready": True})
        self._close()

    def failed(self, error: BaseException) -> None:
        """The last word: it will not."""
        text = " ".join(str(error).split())
        self._say({"failed": type(error).__name__, "text": text})
        self._close()

    def _say(self, message: dict[str, Any]) -> None:
        if self._fd is not None:
            try:
                os.write(self._fd, json.dumps(message).encode() + b"\n")
            except OSError:  # the kernel that waited is gone; the engine goes on
                self._close()

    def _close(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


def heard(line: bytes) -> dict[str, Any] | None:
    """The message that a line is; None for what something else has printed before it could be kept from that."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(found, dict) and ({"stage", "share"} <= found.keys() or {"failed", "text"} <= found.keys())
    return found if known or found == {"ready": True} else None


def error_of(message: dict[str, Any]) -> YaieError:
    """The error that a `failed` message tells of."""
    name, text = str(message["failed"]), str(message["text"])
    if name in KINDS:
        return KINDS[name](text)
    return YaieError(f"{name}: {text}" if name != "YaieError" else text)
