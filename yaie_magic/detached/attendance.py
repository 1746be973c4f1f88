"""How long nobody has asked an engine for anything."""

from __future__ import annotations

import threading
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie_magic.server.guard import OPEN_PATHS

REFUSED = (401, 403)


class Attendance:
    """Counts the requests that are open, and remembers when the last one ended. /health, which anyone may ask, and
    requests without the key do not count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._last = time.monotonic()

    def start(self) -> None:
        """The engine is ready: count from now."""
        with self._lock:
            self._last = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one is open."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._last

    def around(self, app: ASGIApp) -> ASGIApp:
        """The app, its requests counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
                await app(scope, receive, send)
                return
            admitted = False

            async def noted(message: Message) -> None:
                nonlocal admitted
                if message["type"] == "http.response.start":
                    admitted = message["status"] not in REFUSED
                await send(message)

            self._count(1, False)
            try:
                await app(scope, receive, noted)
            finally:
                self._count(-1, admitted)

        return counted

    def _count(self, change: int, admitted: bool) -> None:
        with self._lock:
            self._open += change
            if admitted:
                self._last = time.monotonic()
