"""Sends a load over HTTP and notes when each piece of each answer came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from yaie_magic.remote.address import Address
from yaie_magic.remote.client import settings
from yaie_magic.remote.document import parse
from yaie_magic.remote.events import EventReader
from yaie_magic.remote.faults import RemoteError, refusal_of
from yaie_magic.remote.figures import count
from yaie_magic.remote.key import Key

from .load import Due, Load, schedule, warmups

Ended = Callable[[], None]
MOST_REFUSED = 1 << 16
MOST_ANSWER = 1 << 26


@dataclass(slots=True)
class Outcome:
    """One request. Times are seconds after the start of the load; `pieces` are those at which text came.

    `error` is the kind of failure, "" for none. Tokens are as the server counts them; None where it does not.
    """

    due: float
    sent: float = 0.0
    pieces: list[float] = field(default_factory=list)
    ended: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""


async def send(load: Load, address: Address, key: Key | None, on_end: Ended = lambda: None) -> list[Outcome]:
    """The whole load, in the order in which requests were due.

    At most `load.most` requests are in flight; one that has to wait for that counts the wait.

    Raises:
        RemoteError: a warm-up failed, so the load would, too.
    """
    limits = httpx.Limits(max_connections=load.most, max_keepalive_connections=load.most)
    async with httpx.AsyncClient(**settings(address, key, load.timeout), limits=limits) as http:
        for due in warmups(load):
            outcome = Outcome(0.0)
            await _one(http, load, due, outcome, time.perf_counter(), key)
            if outcome.error:
                raise RemoteError(f"{address.root} did not answer a warm-up: {outcome.error}")
        room, start = asyncio.Semaphore(load.most), time.perf_counter()

        async def at_its_time(due: Due) -> Outcome:
            await asyncio.sleep(max(0.0, start + due.at - time.perf_counter()))
            outcome = Outcome(due.at)
            async with room:
                await _one(http, load, due, outcome, start, key)
            on_end()
            return outcome

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(at_its_time(due)) for due in schedule(load)]
        return [task.result() for task in tasks]


async def _one(http: httpx.AsyncClient, load: Load, due: Due, outcome: Outcome, start: float, key: Key | None) -> None:
    """Send one request and read its answer; whatever goes wrong becomes the kind of its error."""
    outcome.sent = time.perf_counter() - start
    try:
        async with asyncio.timeout(load.timeout), http.stream("POST", load.path, json=due.body(load)) as response:
            if response.status_code != 200:
                outcome.error = await _refusal(response, key)
            else:
                await _read(response, outcome, start)
    except (TimeoutError, httpx.TimeoutException):
        outcome.error = "timeout"
    except httpx.ConnectError:
        outcome.error = "no connection"
    except httpx.HTTPError:
        outcome.error = "connection broke"
    except RemoteError:
        outcome.error = "answer that cannot be read"
    outcome.ended = time.perf_counter() - start


async def _refusal(response: httpx.Response, key: Key | None) -> str:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MOST_REFUSED:
            break
    refusal = refusal_of(response.status_code, response.headers, bytes(body), key)
    return f"HTTP {refusal.status}" + (f" {refusal.code}" if refusal.code else "")


async def _read(response: httpx.Response, outcome: Outcome, start: float) -> None:
    reader, size, done = EventReader(), 0, False
    async for piece in response.aiter_raw():
        now = time.perf_counter() - start
        size += len(piece)
        if size > MOST_ANSWER:
            raise RemoteError("an answer has no end")
        for data in reader.push(piece):
            if data == "[DONE]":
                done = True
                continue
            try:
                event = parse(data)
            except ValueError:
                raise RemoteError("an event is no JSON") from None
            done = _take(event, outcome, now) or done
    if outcome.error:
        return
    if not done:
        outcome.error = "stream ended early"
    elif not outcome.pieces:
        outcome.error = "no text"


def _take(event: Any, outcome: Outcome, now: float) -> bool:
    """Note what an event says; whether it ends the answer.

    Raises:
        RemoteError: it is none of the OpenAI API.
    """
    if not isinstance(event, dict):
        raise RemoteError("an event is no object")
    if event.get("error") is not None:
        error = event["error"]
        code = error.get("code") if isinstance(error, dict) else None
        outcome.error = f"error in the stream: {code}" if isinstance(code, str) else "error in the stream"
        return True
    usage = event.get("usage")
    if isinstance(usage, dict):
        outcome.input_tokens = count(usage.get("prompt_tokens"))
        outcome.output_tokens = count(usage.get("completion_tokens"))
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice.get("delta")
    text = delta.get("content") or delta.get("reasoning_content") if isinstance(delta, dict) else choice.get("text")
    if text:
        outcome.pieces.append(now)
    return choice.get("finish_reason") is not None
