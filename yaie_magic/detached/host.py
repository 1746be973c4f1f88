"""The process of a detached engine: a server on this machine with a key of its own, until it is told to end or idle."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from yaie_engine.config import EngineConfig
from yaie_magic import loading
from yaie_magic.options import UsageProblem
from yaie_magic.server.config import ServerConfig
from yaie_magic.server.foreground import Build, Foreground, Stopped
from yaie_magic.server.listen import bind, url_of

from .attendance import Attendance
from .folder import PrivateFolder
from .messages import Speaker
from .record import DEFAULT_IDLE_S, LOG_SUFFIX, SUFFIX, EngineRecord, uptime_at_start
from .registry import forget

if TYPE_CHECKING:
    from yaie_engine import LLM

logger = logging.getLogger("yaie")
NOTE_S = 1.0
"""How often the file of the engine is given the time of the last request."""


class Host(Foreground):
    """A server that ends when nobody has asked it for anything during `record.idle_timeout` seconds.

    When its file is gone, nobody can find it any more: then it does not stay for ever, whatever was asked.
    """

    def __init__(self, config: ServerConfig, build: Build, record: EngineRecord, speaker: Speaker) -> None:
        self._attendance = Attendance()
        super().__init__(config, build)
        self._record, self._speaker = record, speaker
        self._limit, self._noted = record.idle_timeout, 0.0
        self.serving = False
        with PrivateFolder() as folder:
            self._path = folder.path / (record.name + SUFFIX)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Requests are counted."""
        return self._attendance.around(app)

    def ready(self, llm: LLM) -> None:
        """Say so to whoever waits."""
        super().ready(llm)
        self._attendance.start()
        self.serving = True
        self._speaker.ready()

    def ended(self) -> bool:
        """Also after the idle time."""
        return super().ended() or (self.serving and self._idle_too_long())

    def _idle_too_long(self) -> bool:
        idle = self._attendance.idle_s
        if time.monotonic() - self._noted >= NOTE_S:
            self._noted = time.monotonic()
            self._note(time.time() - idle)
        if not self._limit or idle < self._limit:
            return False
        logger.info("nobody has asked for %.0f s: the end", idle)
        return True

    def _note(self, last: float) -> None:
        try:
            os.utime(self._path, (last, last), follow_symlinks=False)
        except FileNotFoundError:
            self._limit = min(self._limit or DEFAULT_IDLE_S, DEFAULT_IDLE_S)
            self._noted = math.inf  # never again: a file of that name would be another engine's
        except OSError:
            logger.debug("the time of the last request could not be noted", exc_info=True)


def main() -> int:
    """Read from standard input what to load; talk on standard output until it is loaded; 0 when it ended in order."""
    speaker = Speaker(os.dup(1))
    os.dup2(2, 1)  # what libraries print goes to the log, and nobody's pipe breaks
    _set_up_logging()
    atexit.register(gc.freeze)
    try:
        return _serve(json.load(sys.stdin), speaker)
    except Stopped:
        speaker.failed(UsageProblem("it was stopped while it loaded"))
        return 0
    except BaseException as error:
        logger.error("%s: %s", type(error).__name__, " ".join(str(error).split()))
        logger.debug("details", exc_info=error)
        speaker.failed(error)
        return 1


def _serve(order: dict[str, Any], speaker: Speaker) -> int:
    """`order`: name, config, key, idle_timeout, and log: what its log is called until the name is its own."""
    import psutil

    config = EngineConfig(**order["config"])
    server = ServerConfig(port=0, api_key=order["key"], access_log="off")
    sock = bind(server)
    me = psutil.Process()
    record = EngineRecord(
        name=order["name"],
        model=config.model,
        pid=me.pid,
        started=me.create_time(),
        uptime=uptime_at_start(me.pid),
        url=url_of(sock),
        key=order["key"],
        idle_timeout=order["idle_timeout"],
        config=order["config"],
    )

    def build(progress: loading.Progress) -> LLM:
        def both(what: str, share: float | None) -> None:
            progress(what, share)
            speaker.stage(what, share)

        try:
            return loading.build_llm(config, both)
        except Exception as error:
            if not isinstance(error, Stopped):
                speaker.failed(error)
            raise

    with PrivateFolder() as folder:
        try:
            folder.write_new(record.name + SUFFIX, record.to_bytes())
        except FileExistsError:
            raise UsageProblem(
                f"a detached engine called {record.name} runs already; %yaie attach {record.name}"
            ) from None
    try:
        with PrivateFolder() as folder:
            folder.rename(order["log"], record.name + LOG_SUFFIX)
        host = Host(server, build, record, speaker)
        host.run(sock)
        if not host.serving:
            raise Stopped
    except BaseException:
        forget(record, keep_log=True)
        raise
    forget(record)
    return 0


def _set_up_logging() -> None:
    """Everything of ours to the log, with the time."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
