"""A server on a thread of its own, for an engine that somebody else uses, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from yaie_engine.errors import YaieError

from .http_server import HttpServer
from .listen import bind, url_of
from .slot import EngineSlot

if TYPE_CHECKING:
    from yaie_engine import LLM

    from .config import ServerConfig

START_S = 30.0


class BackgroundServer:
    """Serves from the moment it is made until `stop`, until the engine is closed, or until `ended()`.

    A failed engine is still answered for, with 503.
    """

    def __init__(self, llm: LLM, config: ServerConfig, ended: Callable[[], bool] = lambda: False) -> None:
        self.config = config
        self.llm = llm
        sock = bind(config)
        self.url = url_of(sock)
        self._slot = EngineSlot(llm)
        self._server = HttpServer(self._slot, config, lambda: llm.state == "closed" or ended())
        self._thread = threading.Thread(target=self._server.run_on, args=(sock,), name="yaie-server", daemon=True)
        self._thread.start()
        end = time.monotonic() + START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        if not self._server.started:
            raise YaieError("the server did not start")

    @property
    def running(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    @property
    def num_active(self) -> int:
        """Requests that are being answered."""
        return len(self._slot.jobs)

    def stop(self) -> None:
        """Stop listening, cancel what runs for clients, and wait for the end."""
        self._server.should_exit = True
        self._thread.join(self.config.shutdown_timeout + START_S)
