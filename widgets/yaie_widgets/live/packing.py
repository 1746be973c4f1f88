"""Large messages travel packed: notebook servers drop what exceeds a million bytes a second."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

PLAIN_BYTES = 100_000
"""Up to this size a whole state travels as it is, readable in a saved notebook."""
DELTA_BYTES = 8_000
"""Up to this size any other message does."""


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """A whole state as it travels."""
    return measured(message, PLAIN_BYTES)[0]


def measured(message: dict[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """The message itself while it is small; otherwise its kind, and all of it as packed JSON. And its size so."""
    text = json.dumps(message, separators=(",", ":")).encode()
    if len(text) <= most:
        return message, len(text)
    body = base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()
    return {"kind": message["kind"], "packed": body}, len(body)
