"""The connection: uvicorn's protocol with a deadline for the head of a request, and a way to end it at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from .stream import ABORT


class Protocol(H11Protocol):
    """Whoever connects, or begins another request, has `header_timeout` seconds to say what is wanted; whoever leaves a
    whole answer unread for `send_timeout` seconds loses the rest of it."""

    header_timeout = 10.0
    send_timeout = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app = _with_abort(self.app, transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_at_rest(-1)

    def _look_at_rest(self, before: int) -> None:
        """End the connection when as much is unsent as at the last look."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent == before:
            self.transport.abort()
        elif unsent:
            self.loop.call_later(self.send_timeout, self._look_at_rest, unsent)

    def _watch(self) -> None:
        """Between requests the clock runs; while one is answered other limits hold."""
        if self._answering():
            self._disarm()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self._answering():
            self.transport.abort()

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete


def _with_abort(app: ASGIApp, transport: asyncio.Transport) -> ASGIApp:
    """The app, told how to end the connection with what was not sent yet."""

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[ABORT] = transport.abort
        await app(scope, receive, send)

    return inner


def protocol_with(header_timeout: float, send_timeout: float) -> type[Protocol]:
    """The protocol with these deadlines."""
    return type("Protocol", (Protocol,), {"header_timeout": header_timeout, "send_timeout": send_timeout})
