"""HTTP with one server: short questions and their answers, with a bound on size and time."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx

from yaie_magic.server.engine_card import MODEL_HEADER

from .address import Address
from .document import parse
from .faults import RemoteError, refusal_of, unreachable
from .key import Key
from .loop_thread import LoopThread

T = TypeVar("T")
KEEP_S = 2.0
"""Seconds for which an idle connection is kept: less than servers do, so that none is used as it closes."""
SLACK_S = 0.25
"""How much longer than each wait the whole may take: so a silent server is told as one, and a trickle as slow."""
MOST_BYTES = 80 * 2**20
"""What an answer may take: the largest recording, and what surrounds it."""
MOST_SHORT = 4 * 2**20
"""What an answer may take that holds no recording: a list of models, a state, a refusal."""


def settings(address: Address, key: Key | None, timeout: float, model: str = "") -> dict[str, Any]:
    """What both clients of httpx are made with; `model` is the fingerprint of the one that is spoken to.

    Redirects are not followed, and answers are not compressed: a small one could unfold to any size. Within this
    machine no proxy is used.
    """
    headers = {"accept-encoding": "identity"}
    if key is not None:
        headers |= key.header
    if model:
        headers[MODEL_HEADER] = model
    return {
        "base_url": address.root,
        "headers": headers,
        "timeout": timeout,
        "follow_redirects": False,
        "trust_env": not address.loopback,
    }


class Client:
    """Any thread may ask; end it with `close`. The key is in no repr and no error.

    `timeout` is for the whole of a question, from the connection to the last byte.
    """

    def __init__(self, address: Address, key: Key | None, timeout: float = 10.0, model: str = "") -> None:
        self.address, self.timeout = address, timeout
        self._key = key
        limits = httpx.Limits(keepalive_expiry=KEEP_S)
        self._http = httpx.AsyncClient(**settings(address, key, timeout, model), limits=limits)
        self._thread = LoopThread(self._http, "yaie-remote-short")

    @property
    def url(self) -> str:
        """The root of the server."""
        return self.address.root

    def get_json(
        self,
        path: str,
        *,
        timeout: float | None = None,
        any_status: bool = False,
        most: int = MOST_SHORT,
        **query: Any,
    ) -> Any:
        """The answer to GET, of at most `most` bytes; `query` without those that are None. `any_status`: that of an
        error is one, too.

        Raises:
            YaieError: there is none, it is an error, too large or too slow; one line.
        """
        given = {"params": {k: v for k, v in query.items() if v is not None}}
        return self._json(path, self._ask("GET", path, given, timeout, any_status, most))

    def get_text(self, path: str, *, timeout: float | None = None) -> str:
        """The answer to GET as text.

        Raises:
            YaieError: as for `get_json`.
        """
        return self._ask("GET", path, {}, timeout).decode("utf-8", "replace")

    def post_json(self, path: str, body: Any, *, timeout: float | None = None) -> Any:
        """The answer to POST.

        Raises:
            YaieError: as for `get_json`.
        """
        return self._json(path, self._ask("POST", path, {"json": body}, timeout, most=MOST_BYTES))

    def takes(self, path: str) -> bool:
        """Whether there is a route for POST: an empty body is refused in another way than a route that is missing."""
        return self._within(self._taken(path, self.timeout), self.timeout)

    async def _taken(self, path: str, patience: float) -> bool:
        async with self._http.stream("POST", path, json={}, timeout=patience) as response:
            return response.status_code not in (404, 405, 501)

    def _ask(
        self,
        method: str,
        path: str,
        given: dict[str, Any],
        timeout: float | None,
        any_status: bool = False,
        most: int = MOST_SHORT,
    ) -> bytes:
        patience = self.timeout if timeout is None else timeout
        answer = self._answer(method, path, {**given, "timeout": patience}, most)
        status, headers, body = self._within(answer, patience)
        if status != 200 and not any_status:
            raise refusal_of(status, headers, body, self._key).to_error(self.url, path)
        return body

    def _within(self, question: Coroutine[Any, Any, T], patience: float) -> T:
        """What is asked of the server; an answer that comes in trickles, or begins without end, is given up, too."""
        try:
            return self._thread.ask(question, patience + SLACK_S)
        except TimeoutError:
            raise RemoteError(f"{self.url} did not finish its answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, OSError) as error:
            raise unreachable(error, self.url, patience) from None

    async def _answer(
        self, method: str, path: str, given: dict[str, Any], most: int
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, head and body."""
        async with self._http.stream(method, path, **given) as response:
            largest = most if response.status_code == 200 else MOST_SHORT
            return response.status_code, response.headers, await self._read(response, largest)

    def _json(self, path: str, body: bytes) -> Any:
        try:
            return parse(body)
        except ValueError:
            raise RemoteError(
                f"{self.url} does not answer {path} in JSON; is it a server with the OpenAI API?"
            ) from None

    async def _read(self, response: httpx.Response, most: int) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise RemoteError(f"{self.url} compresses its answers, which was not asked for")
        found = bytearray()
        try:
            async for piece in response.aiter_raw():
                found += piece
                if len(found) > most:
                    raise RemoteError(f"{self.url} answers with more than {most >> 20} MiB, which is not read")
            return bytes(found)
        finally:
            found.clear()  # an error keeps this frame, not what was read

    def close(self) -> None:
        """Drop the connections."""
        self._thread.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"
