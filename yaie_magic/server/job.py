"""The engine's work for one HTTP request: queued beside the event loop, awaited on it, cancelled when nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from starlette.types import Receive

from yaie_engine.errors import EngineDeadError, YaieError

from .errors import ApiError, ClientGone, failure, refused

if TYPE_CHECKING:
    from yaie_engine import LLM, Generation, RequestOutput

    from .config import ServerConfig
    from .exchange import Exchange
    from .slot import EngineSlot

logger = logging.getLogger("yaie.server")
T = TypeVar("T")
Piece = tuple[int, int, str]
"""Which prompt, which of its choices, and new text of it."""


class Job:
    """The generations of one request. Every way out goes through `close`: blocks are free again soon after.

    A slow reader makes the feeders wait at the queue; what arrives meanwhile is joined to one piece, so that nothing
    grows beyond the text itself.
    """

    def __init__(self, slot: EngineSlot, config: ServerConfig, exchange: Exchange) -> None:
        self.llm: LLM = slot.llm
        self.generations: list[Generation] = []
        self._slot, self._exchange = slot, exchange
        self._feeders: list[asyncio.Task[None]] = []
        self._stopped = False
        slot.admit(self, config, self.llm)

    @property
    def tenant(self) -> str:
        """Whose share its generations count on."""
        return self._exchange.tenant

    async def start(self, work: Callable[[], list[Generation]]) -> None:
        """Tokenise and queue, beside the event loop. If nobody waits any more, what was queued is cancelled.

        Raises:
            ApiError: a prompt or value is wrong, or the engine takes no more.
        """
        future = self._slot.start(work)
        try:
            self.generations = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_cancel_all)
            raise
        except (ApiError, YaieError) as error:
            raise refused(error) from None
        except Exception as error:
            log_failure("a request could not be prepared", error)
            raise refused(error) from None
        self._exchange.engine_ids += [generation.request_id for generation in self.generations]
        if self._stopped:
            self.cancel()

    async def results(self) -> list[RequestOutput]:
        """The finished requests, in the order of the prompts.

        Raises:
            ApiError: one of them failed or was cancelled.
        """
        for generation in self.generations:
            async for _ in generation:
                generation.pending()
        outputs = self.outputs()
        for output in outputs:
            self.check(output)
        return outputs

    def outputs(self) -> list[RequestOutput]:
        """The results of requests that have ended."""
        return [generation.result(0) for generation in self.generations]

    def check(self, output: RequestOutput) -> None:
        """Raise ApiError when a request did not end well."""
        error = failure(output)
        if error is None:
            return
        if error.code == "cancelled":
            self._exchange.outcome = "cancelled"
        elif error.status == 500:
            logger.error("%s: %s failed: %s", self._exchange.request_id, output.request_id, type(output.error).__name__)
        raise error

    async def pieces(self) -> AsyncIterator[Piece]:
        """New text as it comes, until all prompts are answered."""
        queue: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=1)
        open_ends = len(self.generations)
        self._feeders = [asyncio.create_task(_feed(i, g, queue)) for i, g in enumerate(self.generations)]
        while open_ends:
            piece = await queue.get()
            if piece is None:
                open_ends -= 1
            else:
                yield piece

    async def so_far(self, index: int) -> RequestOutput | None:
        """The output of a running request as it stands; None once it has ended."""
        request_id = self.generations[index].request_id
        try:
            return await self._slot.aside(lambda: self.llm.so_far(request_id))
        except EngineDeadError:
            return None

    def cancel(self) -> None:
        """End what runs; the waiting handler hears of it."""
        self._stopped = True
        for generation in self.generations:
            generation.cancel()

    def close(self) -> None:
        """Nobody waits any more."""
        self.cancel()
        for feeder in self._feeders:
            feeder.cancel()
        self._slot.jobs.discard(self)


async def _feed(index: int, generation: Generation, queue: asyncio.Queue[Piece | None]) -> None:
    async for item in generation:
        choice, text = (0, item) if isinstance(item, str) else item
        waiting = {choice: [text]}
        for choice, text in generation.pending():
            waiting.setdefault(choice, []).append(text)
        for choice, texts in waiting.items():
            await queue.put((index, choice, "".join(texts)))
    await queue.put(None)


def _cancel_all(future: Future[list[Generation]]) -> None:
    """What was queued for somebody who has left."""
    if not future.cancelled() and future.exception() is None:
        for generation in future.result():
            generation.cancel()


async def gone(receive: Receive) -> None:
    """Wait until the client closes the connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """The result of `work`, which ends when the client leaves.

    Raises:
        ClientGone: it left.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.create_task(gone(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await end_tasks(task, watcher)


async def end_tasks(*tasks: asyncio.Future[T] | asyncio.Future[None]) -> None:
    """Cancel those that run, and wait until they have."""
    for task in tasks:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def log_failure(what: str, error: BaseException) -> None:
    """One line with the kind and place of an error; its text, which may hold a prompt, only at debug level."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else ""
    logger.error("%s: %s%s", what, type(error).__name__, place)
    logger.debug("details", exc_info=error)
