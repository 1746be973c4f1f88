"""The memory of the process that runs an engine."""

from __future__ import annotations

from typing import Any

import psutil


def process_memory() -> int:
    """Bytes of main memory that this process takes."""
    return int(psutil.Process().memory_info().rss)


def with_memory(recording: dict[str, Any]) -> dict[str, Any]:
    """The recording of a running engine with the memory of its process; a saved run and an engine that is gone have
    none."""
    engine = recording["engine"]
    if engine.get("state") in ("recorded", "closed", "failed"):
        return recording
    return {**recording, "engine": {**engine, "memory": process_memory()}}
