"""JSON of a server, with a bound on what it may unfold to: a few bytes of text can be a list of a hundred bytes."""

from __future__ import annotations

import json
from typing import Any

MOST_PARTS = 8_000_000
"""Values of one document, about: its commas and opening brackets. The largest recording has far fewer."""


def parse(text: bytes | str) -> Any:
    """The document.

    Raises:
        ValueError: it is no JSON, is nested too deep, or has more than MOST_PARTS values.
    """
    if len(text) > MOST_PARTS and _parts(text) > MOST_PARTS:
        raise ValueError(f"more than {MOST_PARTS:,} values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _parts(text: bytes | str) -> int:
    if isinstance(text, bytes):
        return sum(map(text.count, (b",", b"[", b"{")))
    return sum(map(text.count, ",[{"))
