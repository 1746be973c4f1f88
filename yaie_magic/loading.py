"""Building an engine so that an interrupt returns at once and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from .aside import start
from .interrupt import Interrupted, Shield

if TYPE_CHECKING:
    from yaie_engine import LLM, EngineConfig

Progress = Callable[[str, "float | None"], None]
Build = Callable[["EngineConfig", Progress], "LLM"]


class Abandoned(Exception):
    """Raised inside a build that nobody waits for any more."""


def build_llm(config: EngineConfig, progress: Progress) -> LLM:
    """The engine of a configuration."""
    from yaie_engine import LLM

    return LLM(config.model, config=config, progress=progress)


class _Job:
    """One engine under construction. Whoever comes second, the builder or the interrupt, closes what was built."""

    def __init__(self, report: Progress | None) -> None:
        self.ended: SimpleQueue[None] = SimpleQueue()
        self._report = report
        self._lock = threading.Lock()
        self._built: LLM | BaseException | None = None
        self._abandoned = False

    def progress(self, what: str, share: float | None) -> None:
        """Called by the builder between its stages: pass on how far it is, or stop it."""
        if self._abandoned:
            raise Abandoned
        if self._report is not None:
            self._report(what, share)

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


def load(config: EngineConfig, build: Build = build_llm, report: Progress | None = None) -> LLM:
    """Build an engine on a thread of its own and wait for it.

    An import that is cut short in the middle (torch's, for one) cannot be repeated in the same process. So an interrupt
    ends the wait at once; the builder stops at its next stage, and what it may have built is closed unseen.

    Raises:
        Interrupted: on Ctrl-C; no engine is left behind.
        YaieError: what `build` raised.
    """
    job = _Job(report)

    def work() -> None:
        try:
            job.deliver(build(config, job.progress))
        except BaseException as error:
            job.deliver(error)

    start("yaie-load", work)
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
