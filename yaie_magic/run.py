"""One submitted request, from its live handle to plain data."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie_engine import Generation, RequestOutput, SamplingParams
    from yaie_engine.progress import Progress
    from yaie_engine.serving import Engine
    from yaie_widgets.live.generation_prompt import PromptView

Prompt = str | list[int]


class Run:
    """Shared by the completions of one request. Once the request has ended it holds its RequestOutput and nothing else:
    no handle, no engine but a weak reference. It can be pickled at any time; a copy of a running one stays partial."""

    def __init__(self, handle: Generation, engine: Engine, prompt: Prompt, params: SamplingParams) -> None:
        self._request_id = handle.request_id
        self.prompt, self.params = prompt, params
        self.output: RequestOutput | None = None
        self.cancelled = False
        self._texts: list[list[str]] = [[] for _ in range(params.n)]
        self._handle: Generation | None = handle
        self._engine: weakref.ref[Engine] | None = weakref.ref(engine)
        self._lock = threading.Lock()
        self._at_end: list[Callable[[Run], None]] = []
        self._streamed = False
        self.marked: tuple[int | None, PromptView] | None = None  # how many tokens of the prompt were cached, and where

    @property
    def request_id(self) -> str:
        """The engine's name for the request. A server far away gives it a moment after the request was sent."""
        handle = self._handle
        if handle is not None:
            self._request_id = handle.request_id
        return self._request_id

    @property
    def engine(self) -> Engine | None:
        """The engine that serves the request, while it lives."""
        return self._engine() if self._engine is not None else None

    @property
    def ended(self) -> bool:
        """Whether the request has ended, its output read or not."""
        handle = self._handle
        return handle is None or handle.done

    @property
    def running(self) -> bool:
        """Whether the request has not ended yet."""
        return not self.settle(0)

    def deltas(self) -> Iterator[tuple[int, str]]:
        """(choice, new text) until the request has ended. For one reader."""
        handle = self._handle
        if handle is None:
            return
        self._streamed = True
        for item in handle:
            index, text = (0, item) if isinstance(item, str) else item
            self._texts[index].append(text)
            yield index, text
        self.settle()

    def pieces(self, index: int) -> list[str]:
        """What has come of a choice until now, without waiting; the list only grows. Not beside `deltas`."""
        with self._lock:
            if self._handle is not None:
                self._take(self._handle)
            return self._texts[index]

    def _take(self, handle: Generation) -> None:
        if not self._streamed:
            for choice, text in handle.pending():
                self._texts[choice].append(text)

    def text(self, index: int) -> str:
        """The text of a choice: whole once ended, else what has come so far."""
        return "".join(self.pieces(index)) if self.output is None else self.output.outputs[index].text

    def progress(self, index: int) -> Progress | None:
        """How far a choice is; None once the request is over. What came from the cache is the first choice's number for
        all of them, as in the output: the others share its prompt."""
        handle = self._handle
        found = None if handle is None else handle.progress(index)
        first = found if handle is None or not index else handle.progress(0)
        if found is None or first is None or found is first:
            return found
        return replace(found, facts=replace(found.facts, num_cached_tokens=first.facts.num_cached_tokens))

    def outcome(self) -> RequestOutput | None:
        """The output once there is one. Whoever waits for the request is still the one who settles it."""
        handle = self._handle
        return handle.result(0) if self.output is None and handle is not None and handle.done else self.output

    def wait(self, timeout: float) -> bool:
        """Wait for the end without settling; False when it has not come within `timeout` seconds."""
        handle = self._handle
        return handle is None or handle.wait(timeout)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for the end and keep its output; False when it has not come within `timeout` seconds."""
        handle = self._handle
        if handle is None or self.output is not None:
            return True
        try:
            output = handle.result(timeout)
        except TimeoutError:
            return False
        with self._lock:
            self._take(handle)
            self.output, self._handle, self._request_id = output, None, output.request_id
            callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            callback(self)
        return True

    def settle_soon(self, timeout: float) -> None:
        """`settle`, but if that takes longer than `timeout` seconds a thread goes on waiting: an ended request must not
        keep its handle, which keeps the engine."""
        if not self.settle(timeout):
            threading.Thread(target=self.settle, name=f"yaie-settle-{self.request_id}", daemon=True).start()

    def at_end(self, callback: Callable[[Run], None]) -> None:
        """Call `callback` once with this run when its output is known."""
        with self._lock:
            if self.output is None:
                self._at_end.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        """Ask the engine to end the request at its next step; returns at once."""
        handle = self._handle
        if handle is not None and not handle.done:
            self.cancelled = True
            handle.cancel()

    def __getstate__(self) -> dict[str, Any]:
        names = ("_request_id", "prompt", "params", "output", "cancelled", "_texts")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _handle=None, _engine=None, _lock=threading.Lock(), _at_end=[])
        self._streamed, self.marked = True, None
