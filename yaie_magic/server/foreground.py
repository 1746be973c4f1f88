"""`yaie serve`: the port first, then the model, then requests, until a signal or the end of the engine."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from yaie_engine.errors import YaieError

from .http_server import HttpServer
from .listen import url_of
from .slot import EngineSlot

if TYPE_CHECKING:
    from yaie_engine import LLM

    from .config import ServerConfig

logger = logging.getLogger("yaie.server")
Build = Callable[[Callable[[str, "float | None"], None]], "LLM"]
LAST_WORDS_S = 1.0
"""How long a failed engine is still answered for: waiting clients hear of it, and /health says so to whoever looks."""


class Stopped(Exception):
    """Raised inside a load when the server has been told to stop."""


class Foreground:
    """One run of a server. Use from the main thread."""

    def __init__(self, config: ServerConfig, build: Build) -> None:
        self.config = config
        self.signal: int | None = None
        self._build = build
        self._slot = EngineSlot()
        self._server = HttpServer(self._slot, config, self.ended, self.around)
        self._error: BaseException | None = None
        self._moved = time.monotonic()
        self._failed_at: float | None = None

    # ---- what a server of another kind may change

    def around(self, app: ASGIApp) -> ASGIApp:
        """A layer over the app."""
        return app

    def ready(self, llm: LLM) -> None:
        """Requests are served from now on. Called on the thread that has loaded the model."""
        logger.info("%s is ready", llm.config.model)

    def ended(self) -> bool:
        """Whether to stop without a signal. Asked ten times a second."""
        self._look()
        return self._failed_at is not None and time.monotonic() - self._failed_at >= LAST_WORDS_S

    # ---- the run

    def run(self, sock: socket.socket) -> None:
        """Serve until a signal comes; `self.signal` says which.

        Raises:
            YaieError: the model did not load, loading made no progress, or the engine failed later.
        """
        loader = threading.Thread(target=self._load, name="yaie-load", daemon=True)
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            logger.info("listening on %s; the model is loading", url_of(sock))
            loader.start()
            self._server.run_on(sock)
        finally:
            self._server.should_exit = True
            loader.join(2.0)
            if self._slot.engine is not None:
                self._slot.engine.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._error is not None and self.signal is None:
            raise self._error

    def _load(self) -> None:
        try:
            llm = self._build(self._progress)
        except BaseException as error:
            self._error, self._slot.failed = self._error or error, True
            return
        self._slot.fill(llm)
        if self._server.should_exit:
            llm.close()
        else:
            self.ready(llm)

    def _progress(self, what: str, share: float | None) -> None:
        if self._server.should_exit:
            raise Stopped
        self._slot.stage, self._moved = what, time.monotonic()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first one stops in order, the next one without waiting."""
        self._server.force_exit = self.signal is not None
        self.signal = self.signal or number
        self._server.should_exit = True

    def _look(self) -> None:
        """Notice once that there will be no more answers."""
        if self._failed_at is not None:
            return
        silent = time.monotonic() - self._moved
        if self._slot.state == "loading" and silent > self.config.start_timeout:
            self._error = YaieError(
                f"the model was not ready: no progress for {silent:.0f} s, the last stage was {self._slot.stage!r}"
            )
            self._slot.failed = True
        if self._slot.state == "failed":
            self._error = self._error or YaieError("the engine failed and serves nothing any more; see the log above")
            self._failed_at = time.monotonic()
