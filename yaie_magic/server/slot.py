"""The place of the engine in a server: empty while the model loads, then the engine, perhaps failed in the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, TypeVar

from yaie_engine.errors import AsleepError

from .errors import DEAD, DRAINING, ApiError, busy, draining, refused

if TYPE_CHECKING:
    from yaie_engine import LLM

    from .config import ServerConfig
    from .job import Job

T = TypeVar("T")
State = Literal["loading", "ok", "asleep", "failed"]


class EngineSlot:
    """Holds the engine and what runs on it. Jobs are added and removed on the event loop only."""

    def __init__(self, llm: LLM | None = None) -> None:
        self._llm = llm
        self.stage = "starting"
        self.failed = False
        self.draining = False
        self.jobs: set[Job] = set()
        self._pool: ThreadPoolExecutor | None = None

    # ---- any thread

    def fill(self, llm: LLM) -> None:
        """The model is loaded."""
        self._llm = llm

    @property
    def state(self) -> State:
        """Whether it serves."""
        if self.failed or (self._llm is not None and self._llm.state in ("failed", "closed")):
            return "failed"
        if self._llm is None:
            return "loading"
        return "asleep" if self._llm.state == "asleep" else "ok"

    @property
    def reason(self) -> str:
        """Why nothing new is served and what helps; "" while it serves, loads or sleeps. Names no file."""
        if self.state == "failed":
            return DEAD
        return DRAINING if self._llm is not None and self._llm.state == "draining" else ""

    @property
    def llm(self) -> LLM:
        """The engine, also one that sleeps.

        Raises:
            ApiError: 503 while it loads, when it failed, and when the server stops.
        """
        if self.state == "failed":
            raise ApiError(503, DEAD, "engine_dead")
        if self._llm is None:
            raise ApiError(503, "the model is loading", "loading", headers={"retry-after": "5"})
        if self.draining:
            raise ApiError(503, "the server is stopping", "stopping")
        return self._llm

    @property
    def engine(self) -> LLM | None:
        """The engine in whatever state; None while the model loads."""
        return self._llm

    # ---- event loop

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` beside the event loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(8, 2 + (os.cpu_count() or 1)), "yaie-http")
        return self._pool.submit(work)

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of `work`, which runs beside the event loop."""
        return await asyncio.wrap_future(self.start(work))

    def admit(self, job: Job, config: ServerConfig, llm: LLM) -> None:
        """Let a request in.

        Raises:
            ApiError: 429 when as many are in as can run and wait; 503 while the engine sleeps, and when its books
                broke and it only finishes what it has.
        """
        if llm.state == "asleep":
            raise refused(AsleepError())
        if llm.state == "draining":
            raise draining()
        most = config.max_in_flight or llm.config.max_num_seqs + llm.config.max_waiting
        if len(self.jobs) >= most:
            raise busy(f"{len(self.jobs)} requests are in flight already, at most {most} can be")
        self.jobs.add(job)

    def drain(self) -> int:
        """Refuse new requests and cancel those that run; how many they were."""
        self.draining = True
        for job in list(self.jobs):
            job.cancel()
        return len(self.jobs)

    def close(self) -> None:
        """Let the threads go; the place can be used again."""
        pool, self._pool, self.draining = self._pool, None, False
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
