"""Work beside the main thread, so that an interrupt ends the wait for it and never cuts it short."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from .interrupt import Interrupted, Shield

T = TypeVar("T")
BRIEFLY = 0.2  # seconds


def start(name: str, work: Callable[[], None]) -> None:
    """Run `work` on a thread whose output goes to the cell that is running now: it gets a copy of the context."""
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()


def patient(queue: SimpleQueue[T]) -> T:
    """The next item. A signal that comes just before a wait begins is not seen until it ends: so it is a short one."""
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=BRIEFLY)


def aside(what: str, action: Callable[[], T]) -> T:
    """The result of `action`, which runs on a thread of its own.

    Raises:
        Interrupted: on Ctrl-C; the work goes on unseen to its end.
    """
    ended: SimpleQueue[None] = SimpleQueue()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)
        ended.put(None)

    start(f"yaie-{what}", work)
    with Shield() as shield:
        try:
            with shield.waiting():
                patient(ended)
        except KeyboardInterrupt:
            raise Interrupted(f"{what} interrupted") from None
    if errors:
        raise errors[0]
    return results[0]
