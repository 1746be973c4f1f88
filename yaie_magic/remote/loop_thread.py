"""A thread with an event loop and a client of httpx, for questions that any thread asks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
CLOSE_S = 5.0
LATE_S = 5.0
"""How much longer than it may take a question is waited for: only where the thread is no more."""


class LoopThread:
    """Ends with `close`."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self.http = http
        self._door, self._closed = threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def post(self, action: Callable[[], object]) -> bool:
        """Do something on the loop, soon; False when it has ended. Safe in finalisers."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)
            return True
        return False

    def ask(self, question: Coroutine[Any, Any, T], seconds: float) -> T:
        """What a question gives, which is broken off after so many seconds wherever it is. Not on the loop.

        Raises:
            TimeoutError: it took longer.
            RuntimeError: the thread has ended.
        """
        with self._door:
            if self._closed:
                question.close()
                raise RuntimeError("it was closed")
            future = asyncio.run_coroutine_threadsafe(_bounded(question, seconds), self._loop)
        try:
            return future.result(seconds + LATE_S)
        except concurrent.futures.CancelledError:
            raise RuntimeError("it was closed") from None
        finally:
            future.cancel()  # an interrupt ends the question, too
            del future  # with its error it would be a circle, and keep what was read

    def close(self) -> None:
        """Cancel every task and end the thread."""
        with self._door:  # no question comes after the end
            self._closed = True
        if self.post(self._loop.stop) and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        await self._cancel_all()
        await self.http.aclose()
        await self._loop.shutdown_asyncgens()
        await self._cancel_all()

    async def _cancel_all(self) -> None:
        """End every task. Generators that streams left behind are closed by tasks that begin only after a moment."""
        await asyncio.sleep(0)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            begun = [task for task in tasks if _begun(task)]  # the others follow: anyio loses what never ran
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            await asyncio.sleep(0)


def _begun(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED


async def _bounded(question: Coroutine[Any, Any, T], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        return await question
