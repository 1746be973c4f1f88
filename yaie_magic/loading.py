"""Building an engine so that an interrupt returns at once and leaves nothing behind."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from .interrupt import Interrupted, Shield

if TYPE_CHECKING:
    from yaie_engine import LLM, EngineConfig

Build = Callable[["EngineConfig"], "LLM"]


def build_llm(config: EngineConfig) -> LLM:
    """The engine of a configuration; only the fields that were given are passed on."""
    from yaie_engine import LLM

    return LLM(**{name: getattr(config, name) for name in config.model_fields_set})


class _Job:
    """One engine under construction. Whoever comes second, the builder or the interrupt, closes what was built."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._built: LLM | BaseException | None = None
        self._abandoned = False

    def deliver(self, built: LLM | BaseException) -> None:
        with self._lock:
            self._built, abandoned = built, self._abandoned
        self.ended.put(None)
        if abandoned:
            self.abandon()

    def take(self) -> LLM | BaseException | None:
        with self._lock:
            built, self._built = self._built, None
            return built

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
        built = self.take()
        if built is not None and not isinstance(built, BaseException):
            built.close()


def load(config: EngineConfig, build: Build = build_llm) -> LLM:
    """Build an engine on a thread of its own and wait for it.

    An import that is cut short in the middle (torch's, for one) cannot be repeated in the same process. So the interrupt
    ends the wait, not the work: the builder finishes alone, and what it built is closed unseen.

    Raises:
        Interrupted: on Ctrl-C; no engine is left behind.
        YaieError: what `build` raised.
    """
    job = _Job()

    def work() -> None:
        try:
            job.deliver(build(config))
        except BaseException as error:
            job.deliver(error)

    # The copied context keeps the builder's progress bars in the cell that started it.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="yaie-load", daemon=True).start()
    with Shield() as shield:
        try:
            with shield.waiting():
                job.ended.get()
        except KeyboardInterrupt:
            job.abandon()
            raise Interrupted(f"load of {config.model!r} interrupted; nothing was loaded") from None
    built = job.take()
    if built is None or isinstance(built, BaseException):
        raise built or RuntimeError("the builder delivered nothing")
    return built
