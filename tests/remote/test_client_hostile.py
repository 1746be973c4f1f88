"""A server that answers wrongly, on every route that a connection asks: one line of error, soon, and little memory."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.remote.scripted import Asked, Reply, Script, ScriptedServer
from yaie_engine import SamplingParams, YaieError
from yaie_magic.bench import sender
from yaie_magic.bench.load import Load
from yaie_magic.bench.sender import send
from yaie_magic.readings import read_metrics
from yaie_magic.remote import RemoteLLM, connect, document
from yaie_magic.remote.address import parse_address
from yaie_magic.remote.client import Client
from yaie_magic.remote.faults import RemoteError
from yaie_magic.remote.sleep import sleep, wake_up

OURS = {"id": "m", "owned_by": "yaie", "max_model_len": 64, "engine": {"fingerprint": "f", "vocab_size": 300}}
BOMB = gzip.compress(b" " * 32 * 2**20)
Use = Callable[[RemoteLLM], Any]


def generated(llm: RemoteLLM) -> None:
    output = llm.submit("x", SamplingParams(max_tokens=4)).result(30)
    assert output.finished
    if output.error is not None:
        raise output.error


ROUTES: dict[str, tuple[str, Use]] = {
    "completions": ("/v1/completions", generated),
    "snapshot": ("/debug/snapshot", lambda llm: llm.snapshot()),
    "history": ("/debug/requests", lambda llm: llm.history(3)),
    "tape": ("/debug/recording", lambda llm: llm.tape()),
    "metrics": ("/metrics", lambda llm: read_metrics(llm.client.get_text("/metrics"))),
    "encode": ("/tokenize", lambda llm: llm.tokenizer.encode("x")),
    "decode": ("/detokenize", lambda llm: llm.tokenizer.decode([1])),
    "bytes": ("/detokenize", lambda llm: llm.tokenizer.token_bytes(1)),
    "sleep": ("/sleep", sleep),
    "wake": ("/wake_up", wake_up),
}


def endless(_: Asked, reply: Reply) -> None:
    """Spaces without end, which JSON allows before a value."""
    reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    while True:
        reply.raw(b" " * 2**20)


def bomb(_: Asked, reply: Reply) -> None:
    """Megabytes as a few kilobytes."""
    reply.whole(BOMB, content_encoding="gzip")


def announced(_: Asked, reply: Reply) -> None:
    """A body that never comes in full."""
    reply.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\ncontent-type: application/json\r\n\r\n{")


def elsewhere(_: Asked, reply: Reply) -> None:
    reply.whole(b"", 307, location="http://169.254.169.254/latest")


def body(data: bytes) -> Script:
    return lambda _, reply: reply.whole(data, content_type="application/json")


LIES: dict[str, Script] = {
    "a bomb": bomb,
    "another address": elsewhere,
    "cut short": announced,
    "no json": body(b"<html>\x1b[2J</html>"),
    "deep": body(b"[" * 100_000),
    "a huge number": body(b'{"seconds": ' + b"9" * 5000 + b', "tokens": [' + b"9" * 5000 + b"]}"),
    "a number": body(b"1e400"),
    "nothing": body(b""),
    "lists of lists": body(b'{"tokens": [' + b"[]," * 3000 + b"[]]}"),
    "bad utf-8": body(b'{"prompt": "\xff\xfe"}'),
    "an odd status": lambda _, reply: reply.raw(b"HTTP/1.1 999 \x1b[2J\r\ncontent-length: 0\r\n\r\n"),
    "no http": lambda _, reply: reply.raw(b"\x00\x01\x02" * 100),
    "a head without end": lambda _, reply: reply.raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000),
}
BREAKING = {"an odd status", "no http", "a head without end"}
"""After these a connection is no more: a request may end before the server has read it."""
HARMLESS = {("decode", "bad utf-8"), ("metrics", "nothing")}
"""What may be an answer: a text with marks in the place of bytes, no figures."""


@contextlib.contextmanager
def ours(scripted: ScriptedServer, script: Script) -> Iterator[RemoteLLM]:
    """A connection to what says it is our server, and lies from then on."""
    scripted.on("/v1/models", lambda _, reply: reply.json({"data": [OURS]}))
    for path, _ in ROUTES.values():
        scripted.on(path, script)
    with connect(scripted.url, timeout=1.0) as found:
        yield found


def refused(use: Use, llm: RemoteLLM, may_pass: bool = False) -> None:
    begun = time.monotonic()
    try:
        use(llm)
    except YaieError as error:
        assert "\n" not in str(error) and str(error).isprintable() and len(str(error)) < 1000
    else:
        assert may_pass
    assert time.monotonic() - begun < 25


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_one_line_on_every_route(lie: str, scripted: ScriptedServer) -> None:
    with ours(scripted, LIES[lie]) as llm:
        for name, (_, use) in ROUTES.items():
            refused(use, llm, (name, lie) in HARMLESS)
    routes = {asked.path.partition("?")[0] for asked in scripted.asked}
    assert lie in BREAKING or {path for path, _ in ROUTES.values()} <= routes
    assert not any("latest" in path for path in routes)


def test_endless_answers_take_little_memory(scripted: ScriptedServer) -> None:
    before = psutil.Process().memory_info().rss
    with ours(scripted, endless) as llm:
        for _, use in ROUTES.values():
            refused(use, llm)
    assert psutil.Process().memory_info().rss - before < 400 * 2**20


@pytest.mark.parametrize("lie", [*LIES, "endless"])
def test_connecting_to_a_liar(lie: str, scripted: ScriptedServer) -> None:
    scripted.on("/v1/models", endless if lie == "endless" else LIES[lie])
    refused(lambda _: connect(scripted.url, timeout=1.0), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("lie", LIES)
def test_a_load_on_a_liar_counts_failures(lie: str, scripted: ScriptedServer) -> None:
    scripted.on("/v1/completions", LIES[lie])
    load = Load("m", count=3, warmups=0, timeout=1.0)
    outcomes = asyncio.run(send(load, parse_address(scripted.url), None))
    assert len(outcomes) == 3 and all(each.error and each.error.isprintable() for each in outcomes)


def test_a_load_is_not_held_by_an_answer_without_end(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(_: Asked, reply: Reply) -> None:
        reply.stream()
        while True:
            reply.raw(b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n' * 1000)

    monkeypatch.setattr(sender, "MOST_ANSWER", 2**20)
    scripted.on("/v1/completions", flood)
    (outcome,) = asyncio.run(send(Load("m", count=1, warmups=0), parse_address(scripted.url), None))
    assert outcome.error == "answer that cannot be read" and len(outcome.pieces) < 100_000


def test_a_short_text_that_unfolds_to_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_PARTS", 1000)
    for text in (b"[" + b"[]," * 2000 + b"[]]", "[" + "0," * 2000 + "0]", b'{"a":' * 2000 + b"1" + b"}" * 2000):
        with pytest.raises(ValueError, match=r"values|deep"):
            document.parse(text)
    assert document.parse(b"[" + b"0," * 900 + b"0]") == [0] * 901
    monkeypatch.undo()
    with pytest.raises(ValueError, match="deep"):
        document.parse("[" * 900_000)


@pytest.mark.parametrize(
    "url", ["日本語のテキスト、漢字", "http://z\u0351\u0352a", "http://\ufffe.example", "http://a" + "b" * 80 + ".c"]
)
def test_names_that_no_machine_can_have_are_one_line(url: str) -> None:
    with pytest.raises(YaieError) as found:
        connect(url, timeout=1.0)
    words = str(found.value)
    assert words.isprintable() and ("characters that none has" in words or "no machine has the name" in words)


def dripping(start: bytes, drop: bytes) -> Script:
    """A byte or a few now and then, for ever: each wait for the next is short."""

    def script(_: Asked, reply: Reply) -> None:
        reply.raw(start)
        while True:
            reply.raw(drop)
            time.sleep(0.02)

    return script


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
TRICKLES: dict[str, Script] = {
    "a status line": dripping(b"HTTP/1.1 200 ", b"O"),
    "a head": dripping(HEAD + b"x: ", b"y"),
    "go on": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "go on at once": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "the size of a piece": dripping(HEAD + b"transfer-encoding: chunked\r\n\r\n1;", b"a"),
    "pieces": dripping(HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body": dripping(HEAD + b"content-length: 99999\r\n\r\n", b" "),
}


@pytest.mark.parametrize("trickle", TRICKLES)
def test_one_deadline_is_over_all_of_an_answer(
    trickle: str, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie_magic.remote.client.SLACK_S", 0.05)
    scripted.on("/x", TRICKLES[trickle])
    client = Client(parse_address(scripted.url), None, 0.3)
    questions: list[Callable[[], Any]] = [lambda: client.get_json("/x")]
    if trickle not in ("the size of a piece", "pieces", "a body"):  # of a route its head is all that is asked
        questions.append(lambda: client.takes("/x"))
    for question in questions:
        begun = time.monotonic()
        with pytest.raises(RemoteError, match="in time"):
            question()
        assert time.monotonic() - begun < 3
    scripted.on("/x", lambda _, reply: reply.json([1]))
    client.timeout = 10.0
    assert client.get_json("/x") == [1] and client.takes("/x")
    client.close()
    with pytest.raises(RemoteError):
        client.get_json("/x")
    assert not client._thread._thread.is_alive()


def test_closing_ends_what_others_ask_at_once(scripted: ScriptedServer) -> None:
    scripted.on("/x", lambda _, reply: reply.json([1]))
    told: list[str] = []

    def ask(client: Client) -> None:
        with pytest.raises(RemoteError) as found:
            while True:
                client.get_json("/x")
        told.append(str(found.value))

    for pause in range(8):
        client = Client(parse_address(scripted.url), None, 30.0)
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.003 * pause)
        client.close()
        for thread in threads:
            thread.join(10)
    assert len(told) == 24 and all(map(str.isprintable, told))
