"""Loads of engines and exchanges of kernels take turns: an engine is checked and captured with the kernels it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class KernelGate:
    """Any number of loads at a time, or one exchange. Thread: any."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._loads = 0
        self._closed = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Within the block no kernel is exchanged; a load that begins during an exchange waits for its end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._loads += 1
        try:
            yield
        finally:
            with self._changed:
                self._loads -= 1
                self._changed.notify_all()

    def close(self, deadline: float) -> bool:
        """Wait for all loads, and let none begin until `open`; False if one goes on at `deadline` (monotonic clock)."""
        with self._changed:
            wait = max(0.0, deadline - time.monotonic())
            self._closed = self._changed.wait_for(lambda: not self._loads, wait)
            return self._closed

    def open(self) -> None:
        """The exchange is over."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()


GATE = KernelGate()
"""The one of this process: sources of kernels are the process's own."""
