"""What is known about one HTTP request while it is served: for the log, the counters and the error bodies."""

from __future__ import annotations

import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "busy", "rejected", "error", "cancelled"]
Scope = MutableMapping[str, Any]
KEY = "yaie.exchange"
GONE = 499


@dataclass(slots=True)
class Exchange:
    """One request and its answer. `outcome` is set where the status does not tell it."""

    request_id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}")
    started: float = field(default_factory=time.monotonic)
    status: int | None = None
    outcome: Outcome | None = None
    ignored: list[str] = field(default_factory=list)
    engine_ids: list[str] = field(default_factory=list)
    tenant: str = ""

    @property
    def seconds(self) -> float:
        """Time since the request came."""
        return time.monotonic() - self.started

    @property
    def counted_as(self) -> Outcome:
        """The one counter this request goes to."""
        if self.outcome is not None:
            return self.outcome
        if self.status is None or self.status == GONE:
            return "cancelled"
        if self.status == 429:
            return "busy"
        return "ok" if self.status < 400 else "rejected" if self.status < 500 else "error"


def exchange_of(scope: Scope) -> Exchange:
    """The exchange of a request."""
    found = scope.get(KEY)
    if not isinstance(found, Exchange):
        found = scope[KEY] = Exchange()
    return found
