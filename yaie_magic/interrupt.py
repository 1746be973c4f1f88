"""Ctrl-C in a cell: one clean end for the request, one line for the reader, and "Run All" stops."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from yaie_engine.printable import printable

ECHO = 0.5  # seconds in which another press means the interrupt before it


class Interrupted(KeyboardInterrupt):
    """Raised by a cell that was interrupted, after its partial result was bound. The front end aborts queued cells."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of a traceback."""
        return [printable(str(self))]


class Shield:
    """Lets an interrupt through only while the cell waits; at any other time it is remembered.

    Python raises KeyboardInterrupt wherever the main thread happens to be, a second one in the middle of the clean-up
    of the first. Inside `with Shield() as shield:` it is raised inside `with shield.waiting():` and once only.
    Further presses of the same impatient finger are swallowed until the cell is over. On other threads, which signals
    never reach, it does nothing.
    """

    def __init__(self) -> None:
        self.fired = False
        self._last = 0.0
        self._open = False
        self._installed = False
        self._previous: Any = None

    def __enter__(self) -> Shield:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_interrupt)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            previous = self._previous or signal.default_int_handler
            signal.signal(signal.SIGINT, _without_echo(previous, self._last) if self.fired else previous)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        first, self.fired, self._last = not self.fired, True, time.monotonic()
        if first and self._open:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if an interrupt came."""
        if self.fired:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a blocking wait. Raises KeyboardInterrupt at once if an interrupt came earlier."""
        self._open = True
        try:
            self.check()
            yield
        finally:
            self._open = False


def _without_echo(previous: Any, last: float) -> Any:
    """A handler that ignores presses soon after the last one, then gives way to the handler before it.

    The shell still has to show the error and to answer the front end; an interrupt there loses the answer.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - last >= ECHO:
            signal.signal(signal.SIGINT, previous)
            signal.raise_signal(signal.SIGINT)

    return handle
