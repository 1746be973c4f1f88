"""The handle of a running request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from .channel import Channel, Delta
from .outputs import RequestOutput
from .progress import Progress

Watch = Callable[[int], Progress | None]


class Generation:
    """Text as it is generated: iterate for deltas, `result()` for the whole, `cancel()` to end it.

    Iterating gives `str`, or `(index, str)` when `n > 1`; the deltas of a choice join to its text. A failure while
    running ends the iteration normally and shows in `result().error`. Dropping the handle cancels the request.
    """

    def __init__(
        self, request_id: str, n: int, channel: Channel, cancel: Callable[[str], None], watch: Watch | None = None
    ) -> None:
        self.request_id = request_id
        self.n = n
        self._channel = channel
        self._cancel = cancel
        self._watch = watch

    def __iter__(self) -> Iterator[str | tuple[int, str]]:
        while (item := self._channel.get()) is not None:
            yield item if self.n > 1 else item[1]

    async def __aiter__(self) -> AsyncIterator[str | tuple[int, str]]:
        try:
            while (item := await self._channel.aget()) is not None:
                yield item if self.n > 1 else item[1]
        finally:
            self.cancel()

    @property
    def done(self) -> bool:
        """Whether the request has ended, in whatever way."""
        return self._channel.ended

    def progress(self, index: int = 0) -> Progress | None:
        """How far a choice is, at no cost to the engine; None once the request is over and gone."""
        return None if self._watch is None else self._watch(index)

    def pending(self) -> list[Delta]:
        """The (choice, text) pairs that have arrived and were not read yet, without waiting. For one reader."""
        return self._channel.pending()

    def result(self, timeout: float | None = None) -> RequestOutput:
        """The finished request.

        Raises:
            TimeoutError: it did not end within `timeout` seconds; it goes on running.
        """
        if not self._channel.wait(timeout):
            raise TimeoutError(f"request {self.request_id} is still running after {timeout} s")
        output = self._channel.output
        if output is None:
            raise RuntimeError("an ended request has no output")
        return output

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        return self._channel.wait(timeout)

    def cancel(self) -> None:
        """Ask the engine to end the request at its next step; returns at once, keeps the text so far."""
        if not self._channel.ended:
            self._cancel(self.request_id)

    def close(self) -> None:
        """The same as `cancel`."""
        self.cancel()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_channel"):  # half-made objects are finalised too
            self.cancel()

    def __repr__(self) -> str:
        return f"Generation({self.request_id!r}, {'done' if self.done else 'running'})"
