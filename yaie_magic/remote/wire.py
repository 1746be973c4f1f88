"""The thread on which all streams of one server are read, each as a task of its event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from .address import Address
from .client import KEEP_S, settings
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from .key import Key
    from .request import RemoteRequest


class Wire(LoopThread):
    """Carries at most `most` streams at a time; the others wait here for their turn."""

    def __init__(self, address: Address, key: Key | None, timeout: float, most: int, model: str = "") -> None:
        self.address, self.timeout, self.key = address, timeout, key
        self.places = asyncio.Semaphore(most)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=most, keepalive_expiry=KEEP_S)
        self.requests: set[RemoteRequest] = set()
        super().__init__(httpx.AsyncClient(**settings(address, key, timeout, model), limits=limits), "yaie-remote")

    def task(self, request: RemoteRequest) -> asyncio.Task[None]:
        """The task that serves a request. On the loop only."""
        self.requests.add(request)
        task = self._loop.create_task(request.run())
        task.add_done_callback(lambda _: self.requests.discard(request))
        return task
