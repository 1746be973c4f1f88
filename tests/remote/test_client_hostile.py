"""A server that answers wrongly, on every route that a connection asks: one line of error, soon, and little memory."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
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
