"""The thread on which all streams of one server are read, each as a task of its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx

from .address import Address
from .client import KEEP_S, settings

if TYPE_CHECKING:
    from .key import Key
    from .request import RemoteRequest

CLOSE_S = 5.0


class Wire:
    """Carries at most `most` streams at a time; the others wait here for their turn."""

    def __init__(self, address: Address, key: Key | None, timeout: float, most: int, model: str = "") -> None:
        self.address, self.timeout, self.key = address, timeout, key
        self.places = asyncio.Semaphore(most)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=most, keepalive_expiry=KEEP_S)
        self.http = httpx.AsyncClient(**settings(address, key, timeout, model), limits=limits)
        self.requests: set[RemoteRequest] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="yaie-remote", daemon=True)
        self._thread.start()

    def post(self, action: Callable[[], object]) -> bool:
        """Do something on the loop, soon; False when it has ended. Safe in finalisers."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)
            return True
        return False

    def task(self, request: RemoteRequest) -> asyncio.Task[None]:
        """The task that serves a request. On the loop only."""
        self.requests.add(request)
        task = self._loop.create_task(request.run())
        task.add_done_callback(lambda _: self.requests.discard(request))
        return task

    def close(self) -> None:
        """Cancel every stream and end the thread."""
        if self.post(self._loop.stop) and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        await self._cancel_all()
        await self.http.aclose()
        await self._loop.shutdown_asyncgens()
        await self._cancel_all()

    async def _cancel_all(self) -> None:
        """End every task. Generators that streams left behind are closed by tasks that begin only after a moment."""
        await asyncio.sleep(0)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
