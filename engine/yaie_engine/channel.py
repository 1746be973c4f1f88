"""The one-way pipe from the engine thread to whoever waits for a request: text deltas, then one result."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from queue import Empty, SimpleQueue

from .outputs import RequestOutput

Delta = tuple[int, str]
_LOOK_S = 1.0  # a waiter that is interrupted between taking the lock and giving it back keeps it from the others


class Channel:
    """One writer, one reader. It holds no engine and no tensor, so that a kept result keeps nothing else alive."""

    def __init__(self) -> None:
        self._deltas: SimpleQueue[Delta | None] = SimpleQueue()
        self._ended = False
        # Held until the end. An interrupt may come anywhere in a wait, and must not leave a lock behind that the engine
        # thread needs: of an Event it could.
        self._running = threading.Lock()
        self._running.acquire()
        self._output: RequestOutput | None = None
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    # ---- engine thread

    def put(self, index: int, text: str) -> None:
        """Pass on new text of one choice."""
        self._deltas.put((index, text))
        self._notify()

    def end(self, output: RequestOutput) -> None:
        """The terminal event; called once."""
        self._output = output
        self._ended = True
        self._running.release()
        self._deltas.put(None)
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None:
            loop, event = self._wake
            with contextlib.suppress(RuntimeError):  # the reader's loop is closed: nobody listens any more
                loop.call_soon_threadsafe(event.set)

    # ---- reader

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def output(self) -> RequestOutput | None:
        return self._output

    def get(self) -> Delta | None:
        """The next delta, waiting for it; None after the last one. An interrupt is delivered while waiting."""
        item = self._deltas.get()
        if item is None:
            self._deltas.put(None)  # the end stays readable
        return item

    def pending(self) -> list[Delta]:
        """The deltas that are there now, without waiting."""
        found: list[Delta] = []
        with contextlib.suppress(Empty):
            while (item := self._deltas.get_nowait()) is not None:
                found.append(item)
            self._deltas.put(None)  # the end stays readable
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = _LOOK_S if deadline is None else min(deadline - time.monotonic(), _LOOK_S)
            if left <= 0:
                return False
            if self._running.acquire(timeout=left):
                self._running.release()
        return True

    async def aget(self) -> Delta | None:
        """`get` for a running event loop."""
        loop = asyncio.get_running_loop()
        if self._wake is None or self._wake[0] is not loop:  # a second reader may come from another loop
            self._wake = (loop, asyncio.Event())
        _, event = self._wake
        while True:
            event.clear()
            with contextlib.suppress(Empty):
                item = self._deltas.get_nowait()
                if item is None:
                    self._deltas.put(None)
                return item
            await event.wait()
