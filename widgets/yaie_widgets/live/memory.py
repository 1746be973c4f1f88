"""The memory of the process that runs an engine."""

from __future__ import annotations

from typing import Any

import psutil


def process_memory() -> int:
    """Bytes of main memory that this process takes."""
    return int(psutil.Process().memory_info().rss)


def with_memory(recording: dict[str, Any], memory: int | None) -> dict[str, Any]:
    """A recording with the memory of the process that runs its engine, where one does."""
    return recording if memory is None else {**recording, "engine": {**recording["engine"], "memory": memory}}
