"""Whose share a request counts on under the fair policy: that of the end user whom a client names, else of all clients.

The requests of a notebook that serves its engine are nobody's in particular, and so a share of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

NAMES = ("safety_identifier", "user")
"""Where the OpenAI API has it, the newer name first."""
CLIENTS = "http"


def tenant_of(given: Mapping[str, Any]) -> str:
    """The tenant of a body. A name is kept as its digest: it may be long, and is no business of logs and views."""
    for name in NAMES:
        value = given.get(name)
        if isinstance(value, str) and value:
            return f"{CLIENTS}:{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return CLIENTS
