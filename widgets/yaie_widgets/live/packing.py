"""Large messages travel packed: notebook servers drop what exceeds a million bytes a second."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

PLAIN_BYTES = 100_000


def packed(message: dict[str, Any]) -> dict[str, Any]:
    """The message itself while it is small; otherwise its kind, and all of it as packed JSON."""
    text = json.dumps(message, separators=(",", ":")).encode()
    if len(text) <= PLAIN_BYTES:
        return message
    return {"kind": message["kind"], "packed": base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()}
