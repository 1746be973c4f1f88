"""The thread of an engine: carries out what is put into its inbox, and steps while there is work. Imports no torch."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from .errors import SURVIVED, AsleepError, EngineDeadError
from .openmp import release_workers
from .snapshot import EngineState

logger = logging.getLogger("yaie")
T = TypeVar("T")


class EngineThread(ABC):
    """Runs until it is closed or fails; whoever asks afterwards hears why."""

    def __init__(self) -> None:
        """The thread does not run yet: `_thread.start()` when everything is there."""
        self.state: EngineState = "ready"
        self.failure: BaseException | None = None
        self.slept: int | None = None  # the level of sleep
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._gate = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        _THREADS.add(self)

    # ---- what it does

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether there is nothing to step for."""

    @abstractmethod
    def step(self) -> None:
        """Do some work."""

    @abstractmethod
    def _boundary(self) -> None:
        """The inbox is about to be looked at."""

    @abstractmethod
    def _catch_up(self) -> None:
        """Something from the inbox is about to be carried out. What is raised here ends the engine."""

    @abstractmethod
    def _last_words(self, error: EngineDeadError | None) -> list[Callable[[], object]]:
        """What is done at the end, each whatever becomes of the others; `error` where it is a failure."""

    # ---- any thread

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine thread between two steps and return what it returns.

        Raises:
            EngineDeadError: the engine is closed or failed, or it was when the turn of `function` came.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                if not self.alive:
                    raise self._dead()
                result = function()
                self._catch_up()
                future.set_result(result)
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, SURVIVED):  # a panic of a library in Rust, say: it ends the engine
                    raise

        self._post(run)
        return future.result()

    def before_next(self, action: Callable[[], object]) -> None:
        """Have this done before what is put into the inbox next. It helps, no more: its failure is logged."""
        self._inbox.put(lambda: self._try(action))

    def close(self) -> None:
        """Cancel what runs, end the thread and free the model. Safe to call twice."""
        self._inbox.put(self._stop)
        if threading.current_thread() is not self._thread:
            self._stopped.wait()

    @property
    def alive(self) -> bool:
        """Whether the thread carries out what is put into its inbox; asleep and draining it does, too."""
        return self.state in ("ready", "draining", "asleep")

    @property
    def serves(self) -> bool:
        """Whether it takes requests. Draining it only finishes those that it has, and then it fails."""
        return self.state == "ready"

    def _post(self, action: Callable[[], None], entering: Callable[[], None] | None = None) -> None:
        """Raises EngineDeadError instead of putting `action` into the inbox.

        With `entering`, called first, it is work to be served: asleep (AsleepError) and draining that is refused.
        """
        with self._gate:
            if not self.alive:
                raise self._dead()
            if entering is not None:
                if not self.serves:
                    raise AsleepError if self.state == "asleep" else self._dead()
                entering()
            self._inbox.put(action)

    def _dead(self) -> EngineDeadError:
        if isinstance(self.failure, EngineDeadError):  # it says itself what to do
            return EngineDeadError(str(self.failure))
        why = f": {self.failure!r}" if self.failure else ""
        return EngineDeadError(f"the engine is {self.state}{why}; load the model again")

    # ---- engine thread: the loop

    def _run(self) -> None:
        try:
            while self.alive and not (self.idle and self.state == "draining"):
                if self.idle:
                    self._catch_up()
                    self._drain(wait=True)
                else:
                    self.step()
                    self._drain(wait=False)
        except BaseException as error:
            logger.exception("the engine failed")
            self.failure = error
        finally:
            self._shut_down()

    def _drain(self, wait: bool) -> None:
        """Carry out what is in the inbox; waits for the first item when there is nothing else to do."""
        self._boundary()
        if wait:
            release_workers()  # another engine may compute meanwhile
        while True:
            try:
                action = self._inbox.get(block=wait)
            except Empty:
                return
            self._catch_up()
            action()
            wait = False

    def _stop(self) -> None:
        if self.alive:
            self.state = "closed"

    def _shut_down(self) -> None:
        """Answer everybody who waits, whatever state the bookkeeping is in, and free the model."""
        with self._gate:
            self.state = "failed" if self.failure else "closed"
        dead = self.failure if isinstance(self.failure, EngineDeadError) else f"the engine failed: {self.failure!r}"
        error = EngineDeadError(str(dead)) if self.failure else None
        try:
            for action in self._last_words(error):
                self._last(action)
        finally:
            self._stopped.set()

    def _answer_rest(self) -> None:
        """Carry out what is left in the inbox, one by one: who waits there hears of the end."""
        while not self._inbox.empty():
            self._last(self._inbox.get())

    def _last(self, action: Callable[[], object]) -> None:
        """Something of the end; a panic in it does not keep the rest from being done, either."""
        try:
            action()
        except BaseException:
            logger.exception("the engine stumbled at its end")

    def _try(self, action: Callable[[], object]) -> None:
        """Something that must not keep the rest from being done."""
        try:
            action()
        except SURVIVED:
            logger.exception("the engine stumbled and goes on")


_THREADS: weakref.WeakSet[EngineThread] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked copy of the process has no engine thread: who asks there hears it, and nobody waits for its end."""
    for engine in list(_THREADS):
        engine.failure = EngineDeadError("this process is a fork of the one that loaded the model; load it here, too")
        engine.state = "failed"
        engine._gate, engine._inbox = threading.Lock(), SimpleQueue()  # others may have been in the middle of them
        engine._stopped = threading.Event()
        engine._stopped.set()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
