"""The run of a YAIE server as live views follow it: asked for on a thread of its own, so that no view waits for it."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from yaie_engine.errors import YaieError
from yaie_widgets.live.mirror import Mirror
from yaie_widgets.live.schema import RecordingError

from .client import MOST_BYTES
from .faults import RemoteError

if TYPE_CHECKING:
    from .client import Client

logger = logging.getLogger("yaie.remote")
PATH = "/debug/recording"
TURN_S = 0.2
"""Seconds from one answer to the next question, at least."""
LINGER_S = 5.0
"""How long the thread waits for a view that wants to know more."""
PATIENCE_S, MOST_PATIENCE_S = 3.0, 30.0
"""Seconds until a server that says nothing counts as silent: doubled with each question that it does not answer."""
WHOLE_S = 30.0
"""The same for an answer of some megabytes."""
GRACE_S = 2.0
RETRY_S = 2.0


class RemoteSource:
    """A source (see `yaie_widgets.live.source`) whose engine runs behind a server. Any thread.

    `pull` asks the server and waits for a bounded time; `turn` has a thread ask, which ends when no view is left that
    wants to know. What is known stays when the server is gone; after a restart of it the source tells of the run before
    and of nothing else (`over`).
    """

    def __init__(self, client: Client) -> None:
        """
        Raises:
            YaieError: the server does not answer, shows nothing of its engine, or is none of ours.
        """
        self._client = client
        self._asking = threading.Lock()
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._silences = 0
        self._closed = False
        self.trouble: YaieError | None = None
        """Why the last question has no answer."""
        self._due = math.inf  # until when the question that is open may last
        self._mirror = Mirror(client.get_json(PATH, timeout=WHOLE_S, most=MOST_BYTES))

    @property
    def name(self) -> str:
        return self._mirror.name

    @property
    def alive(self) -> bool:
        return self._mirror.alive

    @property
    def step(self) -> int:
        return self._mirror.step

    @property
    def idle(self) -> bool:
        return self._mirror.idle

    @property
    def memory(self) -> int | None:
        return self._mirror.memory

    @property
    def left_out(self) -> int:
        return self._mirror.left_out

    @property
    def over(self) -> bool:
        """Whether the server runs another engine by now, or the connection was dropped: nothing comes any more."""
        return self._closed or self._mirror.restarted

    def recording(self) -> dict[str, Any]:
        """What is known; asks nobody."""
        return self._mirror.recording()

    def since(self, revision: int) -> dict[str, Any] | None:
        return self._mirror.since(revision)

    def pull(self) -> int:
        """Ask the server now, unless the thread just does, and wait for the answer, which has a bounded time."""
        if self._asking.acquire(timeout=PATIENCE_S):
            try:
                self._ask(PATIENCE_S)
            finally:
                self._asking.release()
        else:  # the thread has waited for as long
            self._fail("unreachable", RemoteError(f"{self._client.url} does not answer"))
        return self._mirror.revision

    def turn(self) -> int:
        """Have the thread ask soon; at once what is known."""
        self._wanted.set()
        # A server may keep a question open for ever, byte by byte.
        if time.monotonic() > self._due and not self._closed:
            self._mirror.fall_silent("unreachable")
        if self._thread is None and not self.over:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=_follow, args=(weakref.ref(self), self._wanted), name="yaie-remote", daemon=True
                    )
                    self._thread.start()
        return self._mirror.revision

    def _ask(self, patience: float) -> None:
        """One question; what goes wrong is the state that views show."""
        mirror = self._mirror
        if self.over:
            return
        if not mirror.follows:  # the whole takes its time
            patience = max(patience, WHOLE_S)
        self._due = time.monotonic() + patience + GRACE_S
        try:
            mirror.take(self._client.get_json(PATH, timeout=patience, most=MOST_BYTES, **mirror.known))
        except RecordingError as error:
            self._fail("unreadable", error)
        except YaieError as error:
            self._fail("unreachable", error)
        else:
            self._silences, self.trouble = 0, None
        finally:
            self._due = math.inf
            if self._closed:  # meanwhile
                self._mirror.fall_silent("disconnected")

    def close(self) -> None:
        """The connection is dropped: views keep what they know."""
        self._closed = True
        self._mirror.fall_silent("disconnected")

    def _fail(self, state: str, error: YaieError) -> None:
        if self._closed:  # what was open then has failed for that reason
            return
        if not self._silences:
            logger.info("%s: %s", state, error)
        self._silences, self.trouble = min(self._silences + 1, 8), error
        self._mirror.fall_silent(state)

    def _serve(self) -> float | None:
        """One question of the thread, and the seconds until the next; None when there is none."""
        with self._asking:
            start = time.monotonic()
            self._ask(min(MOST_PATIENCE_S, PATIENCE_S * 2**self._silences))
            took = time.monotonic() - start
        return None if self.over else RETRY_S if self._silences else max(TURN_S, took)

    def _stop(self) -> None:
        with self._starting:
            self._thread = None


def _follow(watched: weakref.ref[RemoteSource], wanted: threading.Event) -> None:
    """Ask as long as somebody wants to know. Between two questions nothing here keeps the source alive."""
    while True:
        asked = wanted.wait(LINGER_S)
        wanted.clear()
        source = watched()
        if source is None:
            return
        try:
            pause = source._serve() if asked else None
        except Exception:
            logger.exception("an answer of a server was not understood")
            source._fail("unreadable", RemoteError(f"{source._client.url} says what is not understood"))
            pause = RETRY_S
        if pause is None:
            source._stop()
            return
        del source
        time.sleep(pause)
