"""uvicorn, set up for an engine: it cancels what runs when it stops, and stops by itself when the engine is gone."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from .app import create_app
from .protocol import protocol_with

if TYPE_CHECKING:
    from .config import ServerConfig
    from .slot import EngineSlot

LOOK_S = 0.1


class HttpServer(uvicorn.Server):
    """Signals are left to whoever runs it. `ended` is asked now and then: True stops the server. `around` puts a layer
    over the app."""

    def __init__(
        self,
        slot: EngineSlot,
        config: ServerConfig,
        ended: Callable[[], bool],
        around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                around(create_app(slot, config)),
                http=protocol_with(config.header_timeout, config.send_timeout),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=config.max_header_bytes,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=math.ceil(config.shutdown_timeout),
            )
        )
        self._slot, self._ended = slot, ended

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """None: a notebook has handlers of its own, the command sets others."""
        yield

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._ended()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, cancel what runs, wait for its answers to be sent."""
        for server in self.servers:
            server.close()
        self._slot.drain()
        await super().shutdown(sockets)

    def run_on(self, sock: socket.socket) -> None:
        """Serve until it is stopped, on an event loop of its own."""
        with asyncio.Runner() as runner:
            runner.run(self.serve([sock]))
