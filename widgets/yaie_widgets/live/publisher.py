"""The one thread that sends what live views have to say, however many views and engines there are."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from typing import Protocol

logger = logging.getLogger("yaie")


class Publishable(Protocol):
    """A view as the publisher sees it. `due` is the `time.monotonic()` before which it has nothing to send; `over` the
    one from which on it need not be served, unless a page turns up."""

    def due(self) -> float: ...
    def over(self) -> float: ...
    def publish(self) -> None: ...
    def stopped(self) -> None: ...


class Publisher:
    """Asks each view when it is due, and lets it publish then. A view that fails is dropped and the rest go on."""

    def __init__(self) -> None:
        self._views: list[Publishable] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, view: Publishable) -> None:
        """Serve a view until it is over or removed. One that is served already stays so."""
        new = None
        with self._changed:
            if all(each is not view for each in self._views):
                self._views.append(view)
            if self._thread is None or (self._thread.ident and not self._thread.is_alive()):
                new = self._thread = threading.Thread(target=self._run, name="yaie-publisher", daemon=True)
            self._changed.notify()
        if new is not None:  # without the lock: a thread may collect garbage before it says that it has started
            new.start()

    def remove(self, view: Publishable) -> None:
        """Serve a view no more."""
        with self._changed:
            self._views = [each for each in self._views if each is not view]
            self._changed.notify()  # without views the thread ends

    @property
    def crowd(self) -> int:
        """How many views are served."""
        return len(self._views)

    def wake(self) -> None:
        """A view has something new."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._views:
                    self._thread = None
                    return
                views = self._views = [view for view in self._views if view.over() > time.monotonic()]
                if not views:
                    continue
                wait = min(min(_due(view), view.over()) for view in views) - time.monotonic()
                if wait > 0:
                    self._changed.wait(None if math.isinf(wait) else wait)
                    continue
            for view in views:
                self._serve(view)

    def _serve(self, view: Publishable) -> None:
        try:
            if view.due() <= time.monotonic():
                view.publish()
        except Exception:
            logger.exception("a live view stops: %r", view)
            self.remove(view)
            with suppress(Exception):
                view.stopped()


def _due(view: Publishable) -> float:
    """When it is due; at once for a view that cannot say, which fails then."""
    try:
        return view.due()
    except Exception:
        return -math.inf


publisher = Publisher()
