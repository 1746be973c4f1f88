"""Models and tokenizers that misbehave, and clients that do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.engine.fakes import FakeRunner, eventually
from tests.engine.models import VOCAB
from yaie_engine import LLM
from yaie_magic.server.background import BackgroundServer

OPEN: list[socket.socket] = []
"""Sockets of the running test; the fixture closes them."""


WEB = httpx.Client(trust_env=False, verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))  # noqa: S501


class Gate:
    """Holds something up until `open()`; `entered` says how often it was reached."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.entered = 0

    def __call__(self, *_: object) -> None:
        self.entered += 1
        self._open.wait(30)

    def open(self) -> None:
        self._open.set()


def endless(llm: LLM, token_id: int = 65, pause: float = 0.002) -> FakeRunner:
    """A model that never ends: the same letter again and again, one each `pause` seconds."""
    runner = FakeRunner(VOCAB, lambda _: {token_id: 9.0}, before=lambda _: time.sleep(pause))
    llm._engine.runner = runner  # type: ignore[assignment]
    return runner


def failing(llm: LLM, after: int, error: BaseException) -> FakeRunner:
    """A model that raises at a step."""

    def before(_: Any) -> None:
        if runner.steps > after:
            raise error

    runner = FakeRunner(VOCAB, lambda _: {65: 9.0}, before=before)
    llm._engine.runner = runner  # type: ignore[assignment]
    return runner


def slow_tokenizer(llm: LLM, gate: Gate, monkeypatch: Any) -> None:
    """A tokenizer that waits at a gate."""
    plain = llm.tokenizer.encode

    def encode(*given: Any, **named: Any) -> list[int]:
        gate()
        return plain(*given, **named)

    monkeypatch.setattr(llm.tokenizer, "encode", encode)


class RawStream:
    """A streamed request over a bare socket, so that a test decides when and whether it reads."""

    def __init__(self, server: BackgroundServer, path: str, body: dict[str, Any], small_buffers: bool = False) -> None:
        data = json.dumps(body).encode()
        place = urlsplit(server.url)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if small_buffers:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(30)
        self.sock.connect((place.hostname, place.port))
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        self.sock.sendall(head.encode() + b"\r\n\r\n" + data)
        self.received = b""
        OPEN.append(self.sock)

    def read_until(self, mark: bytes, count: int = 1) -> bytes:
        """Everything up to the `count`-th mark."""
        while self.received.count(mark) < count:
            chunk = self.sock.recv(65536)
            if not chunk:
                raise EOFError(self.received[-300:])
            self.received += chunk
        return self.received

    def read_to_end(self) -> bytes:
        """Everything until the server closes, or the end of the chunked body."""
        while not self.received.endswith(b"0\r\n\r\n") and (chunk := self.sock.recv(65536)):
            self.received += chunk
        return self.received

    def reset(self) -> None:
        """Leave without a word."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()


def send(server: BackgroundServer, path: str, body: dict[str, Any], **given: Any) -> httpx.Response:
    """POST a JSON body on a connection of its own."""
    return WEB.post(server.url + path, json=body, **given)


def get(server: BackgroundServer, path: str, **given: Any) -> httpx.Response:
    """GET on a connection of its own."""
    return WEB.get(server.url + path, **given)


def outcomes(server: BackgroundServer) -> dict[str, int]:
    """The counters of requests, as Prometheus sees them."""
    text = get(server, "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("yaie:requests_total{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def counted(server: BackgroundServer, **wanted: int) -> None:
    """Wait until exactly these requests are counted."""
    full = {"ok": 0, "busy": 0, "rejected": 0, "error": 0, "cancelled": 0, **wanted}
    eventually(lambda: outcomes(server) == full, 10)


def idle(server: BackgroundServer) -> None:
    """Nothing in flight, every block free or cached."""
    llm = server.llm
    eventually(lambda: not llm.running() and server.num_active == 0, 10)
    llm.check()
    blocks = llm.snapshot().blocks
    assert blocks.held == 0 and blocks.free + blocks.cached == blocks.total


def in_state(llm: LLM, state: str) -> None:
    """Wait until a request is in this state."""
    eventually(lambda: any(view.state == state for view in llm.snapshot().requests), 10)


def events(data: bytes) -> Iterator[Any]:
    """The events in the raw bytes of a stream."""
    for line in data.split(b"\n"):
        if line.startswith(b"data: "):
            yield "[DONE]" if line == b"data: [DONE]" else json.loads(line[6:])
