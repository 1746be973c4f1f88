"""The detached engines as rows of text and as JSON, for notebook and shell."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from yaie_magic.terminal import printable

from .health import state_of
from .registry import Found

HEAD = ("name", "model", "state", "process", "since", "idle", "ends by itself")


def rows(found: Iterable[Found], here: Collection[str] = ()) -> list[str]:
    """A table with a head; `here`: names that this kernel is attached to."""
    lines = [HEAD, *(_row(each, each.record.name in here) for each in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def as_dict(found: Found) -> dict[str, Any]:
    """The JSON form; the key is not in it."""
    record = found.record
    return {
        "name": record.name,
        "model": record.model,
        "state": state_of(record),
        "pid": record.pid,
        "since": datetime.fromtimestamp(record.started, UTC).isoformat(timespec="seconds"),
        "idle_s": round(found.idle_s, 1),
        "idle_timeout_s": record.idle_timeout,
        "url": record.url,
    }


def _row(found: Found, attached: bool) -> tuple[str, ...]:
    record = found.record
    left = record.idle_timeout - found.idle_s
    return (
        record.name,
        printable(record.model),
        state_of(record) + (", attached" if attached else ""),
        str(record.pid),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(record.started)),
        lasting(found.idle_s),
        f"after {lasting(record.idle_timeout)} idle, in {lasting(max(0.0, left))}" if record.idle_timeout else "never",
    )


def lasting(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
