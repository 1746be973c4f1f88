"""Requests that no honest client sends, byte by byte over a socket. Meanwhile others are served without delay."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.conftest import Serve
from tests.server.fakes import send
from tests.server.test_guard import BAD_HOSTS, GOOD_HOSTS
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

HEAD = b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GOOD = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
SMALL: dict[str, Any] = {
    "max_body_bytes": 4096,
    "max_header_bytes": 4096,
    "max_json_depth": 8,
    "max_messages": 4,
    "max_prompts": 3,
    "max_prompt_chars": 100,
}
"""The limits that the cases below are about."""


def another(shared: BackgroundServer, request: pytest.FixtureRequest, **limits: Any) -> BackgroundServer:
    """A second server over the same engine."""
    server = BackgroundServer(shared.llm, ServerConfig(port=0, access_log="off", **limits))
    request.addfinalizer(server.stop)
    return server


@pytest.fixture(scope="module")
def small(request: pytest.FixtureRequest, shared_server: BackgroundServer) -> BackgroundServer:
    """Little fits in."""
    return another(shared_server, request, **SMALL)


@pytest.fixture(scope="module")
def quick(request: pytest.FixtureRequest, shared_server: BackgroundServer) -> BackgroundServer:
    """Little patience."""
    return another(shared_server, request, header_timeout=0.4, body_timeout=0.4)


def connect(server: BackgroundServer) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=20)


def read_all(sock: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionError:
        pass
    return data


def exchange(server: BackgroundServer, data: bytes) -> list[int]:
    """The statuses of the answers to these bytes, after which the server must close the connection."""
    with connect(server) as sock:
        sock.sendall(data)
        found = read_all(sock)
    return [int(part.split(b" ", 1)[0]) for part in found.split(b"HTTP/1.1 ")[1:]]


def sized(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


CASES: dict[str, tuple[bytes, list[int]]] = {
    "a good one": (sized(GOOD), [200]),
    "chunked": (
        HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD),
        [200],
    ),
    "no http": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello\r\n\r\n", [400]),
    "no version": (b"GET /health\r\n\r\n", [400]),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n", [400]),
    "space in a name": (b"GET /health HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n", [400]),
    "a null byte": (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n", [400]),
    "a negative length": (HEAD + b"Content-Length: -5\r\n\r\n", [400]),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", [400]),
    "a length in letters": (HEAD + b"Content-Length: five\r\n\r\nhello", [400]),
    "a bad chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", [400]),
    "an unknown encoding": (HEAD + b"Transfer-Encoding: gzip\r\n\r\nhello", [400]),
    "a huge announced body": (HEAD + b"Content-Length: 999999999999\r\nConnection: close\r\n\r\n", [413]),
    "a long body": (sized(b'{"prompt": "' + b"x" * 5000 + b'"}'), [413]),
    "a long chunked body": (
        HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + b"400\r\n%s\r\n" % (b"x" * 1024) * 8,
        [413],
    ),
    "large headers": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 400) for i in range(12))
        + b"\r\n",
        [431],
    ),
    "a long path": (b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (b"a" * 4090), [431]),
    "an encoded slash": (b"GET /v1%2fmodels HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", [200]),
    "another method": (b"PUT /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", [405]),
    "a made-up method": (b"BREW /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", [405]),
    "trace": (b"TRACE /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", [405]),
    "a websocket": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
        [200],
    ),
    "pipelined": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2
        + b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        [200, 200, 404],
    ),
    "bad utf-8": (sized(b'{"prompt": "\xff\xfe"}'), [422]),
    "utf-16": (sized('{"prompt": "x"}'.encode("utf-16")), [422]),
    "a number": (sized(b"3"), [422]),
    "cut short": (sized(b'{"prompt": "x"'), [422]),
    "not a number": (sized(b'{"prompt": "x", "temperature": NaN}'), [422]),
    "infinite": (sized(b'{"prompt": "x", "temperature": 1e999}'), [422]),
    "deep": (sized(b'{"prompt": "x", "other_thing": ' + b"[" * 9 + b"]" * 9 + b"}"), [422]),
    "very deep": (sized(b"[" * 4000), [422]),
    "deep objects": (sized(b'{"a":' * 600 + b"1" + b"}" * 600), [422]),
    "many digits": (sized(b'{"prompt": "x", "seed": ' + b"9" * 4000 + b"}"), [422]),
    "a compressed body": (sized(gzip.compress(GOOD), HEAD + b"Content-Encoding: gzip\r\n"), [422]),
    "an empty body": (sized(b""), [422]),
    "two objects": (sized(GOOD + GOOD), [422]),
    "a name twice": (sized(b'{"prompt": "x", "max_tokens": 1, "max_tokens": 2}'), [200]),
    "half a character in the JSON": (sized(b'{"prompt": "\\ud800", "max_tokens": 1}'), [422]),
    "bad utf-8 in the path": (b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", [400]),
    "bad utf-8 in a header": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \xff\xfe\r\nConnection: close\r\n\r\n",
        [200],
    ),
    "bad utf-8 in the origin": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://\xff\r\nConnection: close\r\n\r\n",
        [403],
    ),
    "bad utf-8 in the query": (
        b"GET /debug/requests?limit=\xff HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        [400],
    ),
    "a folded header": (
        b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\nX: a\r\n Host: evil\r\n\r\n",
        [200],
    ),
    "a folded host": (b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\n .evil\r\n\r\n", [403]),
    "bare newlines": (b"GET /health HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n", [200]),
    "length and chunks": (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [422]),
    "a request inside of another": (
        HEAD
        + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)
        + b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        [422],
    ),
    "a chunk of any size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nx", [400]),
    "chunk extensions without end": (
        HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1;" + b"x" * 200_000,
        [400],
    ),
    "trailers": (
        HEAD
        + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(GOOD), GOOD)
        + b"X-Api-Key: late\r\n\r\n",
        [200],
    ),
    "an absolute address": (
        b"GET http://evil.example/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        [404],
    ),
    "connect": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", [403]),
    "a length over all numbers": (HEAD + b"Content-Length: " + b"9" * 300 + b"\r\nConnection: close\r\n\r\n", [400]),
    "http/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [403, 400]),
    "an old version": (b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", [200]),
    "200 small headers": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        + b"".join(b"X%d: v\r\n" % i for i in range(200))
        + b"\r\n",
        [200],
    ),
    "ranges without end": (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nRange: bytes=" + b"0-1," * 800 + b"\r\n\r\n",
        [200],
    ),
    "a prompt too long": (sized(json.dumps({"prompt": "x" * 101}).encode()), [422]),
}


@pytest.mark.parametrize("name", CASES)
def test_raw(small: BackgroundServer, name: str) -> None:
    data, wanted = CASES[name]
    assert exchange(small, data) == wanted


def foreign(host: str) -> tuple[bytes, list[int]]:
    """A question under this name, and its answer; spaces around a value are no part of it."""
    asked = b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode()
    return asked, [200 if host.strip() in GOOD_HOSTS else 403]


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_foreign_names_over_a_socket(small: BackgroundServer, host: str) -> None:
    """What the HTTP parser leaves of the header counts, not what a client library makes of it."""
    data, wanted = foreign(host)
    assert exchange(small, data) == wanted


def test_too_many_messages_and_prompts(small: BackgroundServer) -> None:
    messages = [{"role": "user", "content": "x"}] * 5
    answer = send(small, "/v1/chat/completions", {"messages": messages})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages"
    answer = send(small, "/batch_generate", {"prompts": ["x"] * 4})
    assert answer.status_code == 422 and answer.json()["error"]["param"] == "prompts"


@pytest.mark.parametrize("begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_a_head_that_does_not_come_ends_the_connection(quick: BackgroundServer, begun: bytes) -> None:
    with connect(quick) as sock:
        sock.sendall(begun)
        start = time.monotonic()
        assert read_all(sock) == b""
    assert 0.3 < time.monotonic() - start < 5


def test_a_second_head_on_the_same_connection_has_the_same_deadline(quick: BackgroundServer) -> None:
    with connect(quick) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in sock.recv(65536)
        sock.sendall(b"GET /hea")
        start = time.monotonic()
        read_all(sock)
    assert time.monotonic() - start < 5


def test_dripping_bytes_do_not_renew_the_deadline(quick: BackgroundServer) -> None:
    start = time.monotonic()
    with connect(quick) as sock, pytest.raises(OSError):
        for _ in range(100):
            sock.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - start < 4


def test_a_body_that_does_not_come_is_408(quick: BackgroundServer) -> None:
    with connect(quick) as sock:
        sock.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert read_all(sock).startswith(b"HTTP/1.1 408")


def test_others_are_served_meanwhile(small: BackgroundServer) -> None:
    """100 connections that say nothing, half a head, or half a body: /health answers at once."""
    begun = (b"", b"GET /hea", HEAD + b"Content-Length: 4000\r\n\r\n{")
    socks = [connect(small) for _ in range(100)]
    try:
        for index, sock in enumerate(socks):
            sock.sendall(begun[index % 3])
        with httpx.Client(base_url=small.url, trust_env=False) as client:
            usual = sorted(_seconds(lambda: client.get("/health")) for _ in range(5))[2]
    finally:
        for sock in socks:
            sock.close()
    assert usual < 5


def _seconds(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def test_there_is_one_listening_socket(serve: Serve) -> None:
    import psutil

    def listening() -> int:
        return sum(item.status == psutil.CONN_LISTEN for item in psutil.Process().net_connections("tcp"))

    before = listening()
    server = serve()
    assert listening() == before + 1
    server.stop()
    assert listening() == before
