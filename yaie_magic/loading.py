"""Building an engine so that an interrupt returns at once and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

from yaie_engine.stages import READING_WEIGHTS

from .aside import patient, start
from .interrupt import Interrupted, Shield

if TYPE_CHECKING:
    from yaie_engine import LLM, EngineConfig

Progress = Callable[[str, "float | None"], None]
Wish = Literal["room", "end"]
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
        self.wishes: SimpleQueue[Wish] = SimpleQueue()
        self._report = report
        self._lock = threading.Lock()
        self._built: LLM | BaseException | None = None
        self._abandoned = False
        self._answered = threading.Event()

    def run(self, build: Build, config: EngineConfig) -> None:
        """On the builder's thread: build, and hand over what came of it."""
        try:
            built: LLM | BaseException = build(config, self.progress)
        except BaseException as error:
            built = error
        self._deliver(built)

    def progress(self, what: str, share: float | None) -> None:
        """Called by the builder between its stages: pass on how far it is, or stop it."""
        if what == READING_WEIGHTS and not self._answered.is_set():
            self.wishes.put("room")
            self._answered.wait()
        if self._abandoned:
            raise Abandoned
        if self._report is not None:
            self._report(what, share)

    def room_made(self) -> None:
        """The builder may take memory now."""
        self._answered.set()

    def take(self) -> LLM | BaseException | None:
        """What was built, once."""
        with self._lock:
            built, self._built = self._built, None
            return built

    def abandon(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._abandoned = True
        self._answered.set()
        built = self.take()
        if built is not None and not isinstance(built, BaseException):
            built.close()

    def _deliver(self, built: LLM | BaseException) -> None:
        with self._lock:
            self._built, abandoned = built, self._abandoned
        self.wishes.put("end")
        if abandoned:
            self.abandon()


def load(
    config: EngineConfig,
    build: Build = build_llm,
    report: Progress | None = None,
    make_room: Callable[[], None] | None = None,
) -> LLM:
    """Build an engine on a thread of its own and wait for it.

    An import that is cut short in the middle (torch's, for one) cannot be repeated in the same process. So an interrupt
    ends the wait at once; the builder stops at its next stage, and what it may have built is closed unseen.
    `make_room` is called once, on this thread, when all that can be refused cheaply has been and memory is needed.

    Raises:
        Interrupted: on Ctrl-C; no engine is left behind.
        YaieError: what `build` or `make_room` raised.
    """
    job = _Job(report)
    start("yaie-load", partial(job.run, build, config))
    with Shield() as shield:
        try:
            _attend(job, shield, make_room)
        except KeyboardInterrupt:
            job.abandon()
            raise Interrupted(f"load of {config.model!r} interrupted; nothing was loaded") from None
        except BaseException:
            job.abandon()
            raise
    built = job.take()
    if built is None or isinstance(built, BaseException):
        raise built or RuntimeError("the builder delivered nothing")
    return built


def _attend(job: _Job, shield: Shield, make_room: Callable[[], None] | None) -> None:
    """Wait for the end, making room when the builder wishes it."""
    while True:
        with shield.waiting():
            wish = patient(job.wishes)
        if wish == "end":
            return
        if make_room is not None:
            make_room()
        job.room_made()
