"""How large a body may be, and how long it may take to come."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError

if TYPE_CHECKING:
    from .config import ServerConfig


class BodyLimit:
    """ASGI middleware: a body that is too large is refused before it is kept, one that does not come, after a while."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._most, self._seconds = app, config.max_body_bytes, config.body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced[:20]) > self._most:
            raise self._too_large()
        size, complete = 0, False
        end = time.monotonic() + self._seconds

        async def limited() -> Message:
            nonlocal size, complete
            if complete:  # what follows is the end of the connection, however late
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    408,
                    f"the body did not come within {self._seconds:g} s",
                    "body_timeout",
                    headers={"connection": "close"},
                ) from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if size > self._most:
                    raise self._too_large()
            return message

        await self._app(scope, limited, send)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._most} bytes", "body_too_large")
