"""The outermost layer: gives each request its id, turns errors into answers, counts and logs it once, at its end."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError, ClientGone, Json
from .exchange import GONE, Exchange, exchange_of
from .job import log_failure

if TYPE_CHECKING:
    from .config import ServerConfig

logger = logging.getLogger("yaie.access")
COUNTED = ("/v1/chat/completions", "/v1/completions", "/generate", "/batch_generate")
UNPROCESSABLE = ("/generate", "/batch_generate")
POLLED = "/debug/recording"
"""Each live view of a client asks for it five times a second: only what goes wrong with it is for the log."""
OUTCOMES = ("ok", "busy", "rejected", "error", "cancelled")


class Counts:
    """How many generating requests ended in which way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_outcome: Counter[str] = Counter()

    def add(self, outcome: str) -> None:
        """One more."""
        with self._lock:
            self._by_outcome[outcome] += 1

    def by_outcome(self) -> dict[str, int]:
        """All outcomes, those that never were included."""
        with self._lock:
            return {outcome: self._by_outcome[outcome] for outcome in OUTCOMES}


class Ledger:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, config: ServerConfig, counts: Counts) -> None:
        self._app, self._form, self._counts = app, config.access_log, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        exchange = exchange_of(scope)

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = exchange.status or message["status"]
                extra = [(b"x-request-id", exchange.request_id.encode())]
                if exchange.ignored:
                    extra.append((b"x-yaie-ignored", ", ".join(exchange.ignored).encode()))
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        try:
            await self._run(scope, receive, noted, exchange)
        except BaseException:
            exchange.outcome = exchange.outcome or "cancelled"
            raise
        finally:
            self._close(scope, exchange)

    async def _run(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        try:
            await self._app(scope, receive, send)
        except ApiError as error:
            await answer(error, scope, receive, send)
        except ClientGone:
            exchange.outcome, exchange.status = "cancelled", GONE
        except Exception as error:
            log_failure(f"{exchange.request_id}: a request failed", error)
            exchange.outcome = "error"
            if exchange.status is None:
                await answer(ApiError(500, "internal error", "internal_error"), scope, receive, send)

    def _close(self, scope: Scope, exchange: Exchange) -> None:
        if scope["method"] == "POST" and scope["path"] in COUNTED:
            self._counts.add(exchange.counted_as)
        if self._form != "off":
            polled = scope["path"] == POLLED and exchange.status == 200
            logger.log(logging.DEBUG if polled else logging.INFO, "%s", self._line(scope, exchange))

    def _line(self, scope: Scope, exchange: Exchange) -> str:
        """No query and no body: prompts and keys may be in them."""
        found = {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": exchange.status or GONE,
            "duration_ms": round(exchange.seconds * 1000, 1),
            "request_id": exchange.request_id,
            "outcome": exchange.counted_as,
            "engine_requests": exchange.engine_ids[:16],
        }
        if self._form == "json":
            return json.dumps(found)
        engine = f" {','.join(exchange.engine_ids[:16])}" if exchange.engine_ids else ""
        path = json.dumps(found["path"])[1:-1]
        return f"{found['method']} {path} {found['status']} {found['duration_ms']} ms {exchange.request_id}{engine}"


async def answer(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """An error as the answer. Our own short routes say 422 where the OpenAI API says 400."""
    exchange = exchange_of(scope)
    status = 422 if error.status == 400 and scope.get("path") in UNPROCESSABLE else error.status
    await Json(error.body(exchange.request_id), status, error.headers)(scope, receive, send)
