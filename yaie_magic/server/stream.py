"""Server-sent events with a deadline for each send, so that a client that does not read cannot hold a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .errors import ApiError, encode
from .exchange import GONE, exchange_of
from .job import Job, end_tasks, gone, log_failure

if TYPE_CHECKING:
    from .config import ServerConfig

ABORT = "yaie.abort"
"""The extension of the scope that closes the connection at once, unsent bytes included."""
DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Sends `events` as they come, then [DONE]. An error becomes a last event and closes the connection."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, events: AsyncIterator[Any], config: ServerConfig) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._job, self._events, self._deadline = job, events, config.send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        pump = asyncio.create_task(self._pump(scope, send))
        watcher = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait({pump, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not pump.done():
                exchange.outcome, exchange.status = "cancelled", GONE
            else:
                pump.result()
        except TimeoutError:  # the client does not read
            exchange.outcome, exchange.status = "cancelled", GONE
            if abort := scope.get("extensions", {}).get(ABORT):
                abort()
        finally:
            self._job.close()
            await end_tasks(pump, watcher)

    async def _pump(self, scope: Scope, send: Send) -> None:
        exchange = exchange_of(scope)
        start: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._send(send, start)
        try:
            async for event in self._events:
                await self._send_body(send, b"data: " + encode(event) + b"\n\n")
        except ApiError as error:
            exchange.outcome = exchange.outcome or "error"
            await self._send_body(send, b"data: " + encode(error.body(exchange.request_id)) + b"\n\n", more=False)
        except TimeoutError:
            raise
        except Exception as error:
            log_failure(f"{exchange.request_id}: the stream broke off", error)
            exchange.outcome = "error"
            broken = ApiError(500, "internal error", "internal_error")
            await self._send_body(send, b"data: " + encode(broken.body(exchange.request_id)) + b"\n\n", more=False)
        else:
            await self._send_body(send, DONE, more=False)

    async def _send_body(self, send: Send, data: bytes, more: bool = True) -> None:
        await self._send(send, {"type": "http.response.body", "body": data, "more_body": more})

    async def _send(self, send: Send, message: Message) -> None:
        """Raises TimeoutError when the client has not taken what was sent before."""
        async with asyncio.timeout(self._deadline):
            await send(message)
