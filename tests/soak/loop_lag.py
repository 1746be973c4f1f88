"""How long a server's event loop kept its own timers waiting: a task on the loop that sleeps and compares."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from yaie_magic.server.background import BackgroundServer

PERIOD_S = 0.01


class LoopLag:
    """What the task saw: seconds by which each of its sleeps was too long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def _compare(self) -> None:
        while True:
            start = time.monotonic()
            await asyncio.sleep(PERIOD_S)
            self.seconds.append(max(0.0, time.monotonic() - start - PERIOD_S))


@contextlib.contextmanager
def loop_lag(server: BackgroundServer) -> Iterator[LoopLag]:
    """Watch the loop of a running server for as long as the block lasts."""
    lag, loop = LoopLag(), server._server.servers[0].get_loop()
    task = asyncio.run_coroutine_threadsafe(lag._compare(), loop)
    try:
        yield lag
    finally:
        task.cancel()
