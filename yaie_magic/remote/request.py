"""One request to a server: sent, repeated while it is refused for the moment, read as it streams, ended once."""

from __future__ import annotations

import asyncio
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from yaie_engine.channel import Channel
from yaie_engine.errors import EngineDeadError, RequestTimeout, YaieError
from yaie_engine.increment import HEAD_TOKENS, RequestFacts
from yaie_engine.outputs import FinishReason, RequestMetrics, RequestOutput
from yaie_engine.progress import Progress

from .answer import Answer
from .document import parse
from .events import EventReader
from .faults import Refusal, RemoteError, refusal_of, unreachable

if TYPE_CHECKING:
    from yaie_engine.generation import Generation

    from .wire import Wire

IDLE_S = 600.0
"""Seconds without an event after which a stream is given up; comments that keep a connection open do not count."""
RETRY_S = 60.0
"""Seconds for which a request that is refused for the moment is sent again."""
MOST_BYTES = 2**28
"""Of one stream: 100,000 tokens with twenty log-probabilities each take less."""
MOST_REFUSAL = 64 * 1024
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is sent: a POST of `body` to `path`. `prompt` is its text, where it is one; `timeout` in seconds."""

    path: str
    body: dict[str, Any]
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    n: int
    max_tokens: int
    timeout: float | None


class RemoteRequest:
    """Lives on the wire's loop; `channel` and `progress` are for any thread."""

    def __init__(self, name: str, asked: Asked, wire: Wire) -> None:
        self.name = name
        self.channel = Channel()
        self._asked, self._wire = asked, wire
        self._answer = Answer(asked.n)
        self._answer.prompt_token_ids = list(asked.prompt_token_ids)
        self._task: asyncio.Task[None] | None = None
        self._submitted = time.monotonic()
        self._first: float | None = None
        self._last: float | None = None
        self._handle: weakref.ref[Generation] | None = None

    # ---- any thread

    def start(self, handle: Generation) -> None:
        """Queue it. `handle` gets the name that the server gives the request.

        Raises:
            EngineDeadError: the connection was closed.
        """
        self._handle = weakref.ref(handle)
        if not self._wire.post(self._begin):
            raise EngineDeadError(f"the connection to {self._wire.address.root} is closed; connect to it again")

    def cancel(self, _: str = "") -> None:
        """End it, soon: its stream is closed, which frees its place on the server."""
        self._wire.post(self._stop)

    @property
    def request_id(self) -> str:
        """The server's name for it, once that is known."""
        return self._answer.request_id or self.name

    def progress(self, index: int) -> Progress | None:
        """How far a choice is, as far as that can be told from here."""
        answer, choice = self._answer, self._answer.choices[index]
        usage, first = answer.usage, self._first
        num_prompt = len(answer.prompt_token_ids) or usage.prompt or 0
        state = "decode" if choice.texts or choice.token_ids else "waiting" if self._first is None else "prefill"
        label = self.request_id if index == 0 else f"{self.request_id}/{index}"
        now = time.monotonic()
        facts = RequestFacts(
            label=label,
            prompt=self._asked.prompt,
            head_ids=tuple(answer.prompt_token_ids[:HEAD_TOKENS]),
            state=state,
            finish_reason=None,
            stop_reason=None,
            error=None,
            num_prompt_tokens=num_prompt,
            num_cached_tokens=usage.cached,
            num_output_tokens=len(choice.token_ids),
            submitted_at=self._submitted,
            queue_s=None,
            ttft_s=None if first is None else first - self._submitted,
            total_s=None,
        )
        return Progress(
            facts=facts,
            prompt_token_ids=answer.prompt_token_ids,
            ahead=0,
            num_computed_tokens=num_prompt if state == "decode" else 0,
            prefill_end=num_prompt,
            max_tokens=self._asked.max_tokens,
            num_preemptions=0,
            elapsed_s=now - self._submitted,
            tpot_s=self._tpot(),
            first_step=None,
            last_step=None,
        )

    def so_far(self) -> RequestOutput:
        """The output as it stands."""
        return self._answer.output(self.name, self._asked.prompt, None, None, self._times())

    # ---- on the loop

    def _begin(self) -> None:
        self._task = self._wire.task(self)
        self._task.add_done_callback(self._end)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        """The one terminal event, whatever happened before."""
        error: YaieError | None = None
        rest: FinishReason = "cancelled"
        if not task.cancelled() and (found := task.exception()) is not None:
            error = found if isinstance(found, YaieError) else self._broken(found)
            rest = "error"
        elif not task.cancelled():
            rest = "stop"
        self.channel.end(self._answer.output(self.name, self._asked.prompt, rest, error, self._times()))

    def _times(self) -> RequestMetrics:
        """As they were seen from here."""
        return RequestMetrics(
            ttft_s=None if self._first is None else self._first - self._submitted,
            tpot_s=self._tpot(),
            total_s=time.monotonic() - self._submitted,
        )

    def _broken(self, error: BaseException) -> YaieError:
        url = self._wire.address.root
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL | OSError | RuntimeError):
            return unreachable(error, url, self._wire.timeout)
        return RemoteError(f"{url}: {type(error).__name__}")

    def _tpot(self) -> float | None:
        """Seconds per token after the first; not known where a server does not tell its tokens."""
        num = max(len(choice.token_ids) for choice in self._answer.choices) - 1
        return None if self._first is None or self._last is None or num < 1 else (self._last - self._first) / num

    async def run(self) -> None:
        """Serve the request to its end.

        Raises:
            YaieError: it failed.
        """
        try:
            async with asyncio.timeout(self._asked.timeout), self._wire.places:
                await self._until_taken()
        except TimeoutError:
            raise RequestTimeout(f"the request ran longer than its timeout of {self._asked.timeout:g} s") from None

    async def _until_taken(self) -> None:
        end, pause = time.monotonic() + RETRY_S, 0.5
        while (refusal := await self._send()) is not None:
            wait = refusal.wait_s if refusal.wait_s is not None else pause
            if not refusal.passing or time.monotonic() + wait > end:
                raise refusal.to_error(self._wire.address.root, self._asked.path)
            pause = min(2 * pause, 10.0)
            await asyncio.sleep(max(wait, 0.05))

    async def _send(self) -> Refusal | None:
        timeout = httpx.Timeout(self._wire.timeout, read=IDLE_S)
        async with self._wire.http.stream("POST", self._asked.path, json=self._asked.body, timeout=timeout) as response:
            if response.status_code != 200:
                body = await _beginning(response)
                return refusal_of(response.status_code, response.headers, body, self._wire.key)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "text/event-stream" or response.headers.get("content-encoding", "identity") != "identity":
                raise RemoteError(f"{self._wire.address.root} does not stream its answers ({kind[:60] or 'no type'})")
            await self._read(response)
        return None

    async def _read(self, response: httpx.Response) -> None:
        reader, size, alive = EventReader(), 0, time.monotonic()
        done = False
        async for piece in response.aiter_raw():
            size += len(piece)
            for data in reader.push(piece):
                alive = time.monotonic()
                done = done or data.strip() == DONE
                if done:
                    break
                self._take(data)
            if done:
                break
            if size > MOST_BYTES:
                raise RemoteError(f"{self._wire.address.root} sends more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() - alive > IDLE_S:
                raise RemoteError(f"{self._wire.address.root} stopped answering")
        if problem := self._answer.missing(done):
            raise RemoteError(f"{self._wire.address.root} {problem}")

    def _take(self, data: str) -> None:
        try:
            chunk = parse(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            raise RemoteError(f"{self._wire.address.root} sends what is no JSON object in its stream")
        if chunk.get("error") is not None:
            self._failed(data, chunk["error"])
        try:
            deltas = self._answer.take(chunk)
        except RemoteError as error:
            raise RemoteError(f"{self._wire.address.root} sends what cannot be read: {error}") from None
        handle = self._handle() if self._handle is not None else None
        if handle is not None and self._answer.request_id is not None:
            handle.request_id = self._answer.request_id
        now = time.monotonic()
        for index, text in deltas:
            self._first = self._first or now
            self._last = now
            self.channel.put(index, text)

    def _failed(self, data: str, given: object) -> None:
        """An error in the middle of a stream: the server's status is told in its body, if at all."""
        found = refusal_of(500, httpx.Headers(), data.encode(), self._wire.key)
        if found.code == "cancelled":
            for choice in self._answer.choices:
                choice.reason = choice.reason or "cancelled"
            return
        status = {"timeout": 504, "engine_dead": 503, "timeout_error": 504}.get(found.code, 500)
        raise Refusal(status, found.message, found.code, None, found.key_given).to_error(
            self._wire.address.root, self._asked.path
        )


async def _beginning(response: httpx.Response) -> bytes:
    found = bytearray()
    async for piece in response.aiter_raw():
        found += piece
        if len(found) > MOST_REFUSAL:
            break
    return bytes(found[:MOST_REFUSAL])
