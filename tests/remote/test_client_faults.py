"""Servers that refuse, break off, lie or never end: each is one line, and the text so far is kept."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from tests.remote.asking import COMPLETIONS, answers, ask
from tests.remote.conftest import KEY
from tests.remote.scripted import Asked, Reply, ScriptedServer, chunk
from yaie_engine import (
    CapacityError,
    ConfigError,
    EngineDeadError,
    QueueFullError,
    RequestError,
    RequestTimeout,
    YaieError,
)
from yaie_engine.errors import AsleepError
from yaie_magic.remote import KeyNeeded, RemoteError, RemoteLLM, connect, request

# ---- addresses


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://example.org/some/path/v1", "https://example.org/some/path"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("localhost", "http://localhost"),
    ],
)
def test_an_address_may_be_written_in_several_ways(url: str, root: str) -> None:
    from yaie_magic.remote.address import parse_address

    assert parse_address(url).root == root


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "ftp://host",
        "file:///etc/passwd",
        "http://host:port",
        "http://host:99999",
        "http://ho st/",
        "http://host/?key=1",
        "http://host/#x",
        "http://host\n.example",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(ConfigError) as found:
        connect(url)
    assert "\n" not in str(found.value)


def test_a_key_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="YAIE_API_KEY") as found:
        connect(f"http://user:{KEY}@127.0.0.1:1")
    assert KEY not in str(found.value)


def test_nobody_listens(scripted: ScriptedServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RemoteError, match=f"nothing listens on http://127.0.0.1:{port}; start the server"):
        connect(f"127.0.0.1:{port}")


def test_a_name_that_no_machine_has() -> None:
    with pytest.raises(RemoteError, match=r"no machine has the name in http://nowhere\.invalid"):
        connect("nowhere.invalid")


# ---- refusals


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {}, KeyNeeded, "wants a key; set YAIE_API_KEY"),
        (403, {"error": {"message": "bad host"}}, RemoteError, "bad host"),
        (404, {"detail": "Not Found"}, RemoteError, "has no /v1/completions"),
        (404, {"error": {"message": "no model z", "code": "model_not_found"}}, RemoteError, "no model z; --model"),
        (409, {"error": {"message": "another", "code": "model_changed"}}, RemoteError, "another; %yaie restart"),
        (400, {"error": {"message": "top_p is bad"}}, RequestError, "top_p is bad"),
        (400, {"error": {"message": "long", "code": "context_length_exceeded"}}, CapacityError, "long"),
        (422, {"message": "no such field"}, RequestError, "no such field"),
        (413, {}, RequestError, "413"),
        (500, {"error": "it broke"}, RemoteError, "failed (500): it broke"),
        (503, {"error": {"message": "dead", "code": "engine_dead"}}, EngineDeadError, "dead"),
        (503, {"error": {"message": "zzz", "code": "asleep"}}, AsleepError, "%yaie wake"),
        (504, {"error": {"message": "late"}}, RequestTimeout, "late"),
        (302, {}, RemoteError, "sends on to another address"),
        (418, "not even an object", RemoteError, "failed (418)"),
    ],
)
def test_each_refusal_names_what_to_do(
    scripted: ScriptedServer, status: int, body: Any, kind: type[Exception], words: str
) -> None:
    scripted.on(COMPLETIONS, lambda _, reply: reply.json(body, status))
    output = ask(scripted)
    assert type(output.error) is kind
    assert words in str(output.error)
    assert output.outputs[0].finish_reason == "error"
    assert len(scripted.requests(COMPLETIONS)) == 1


def test_a_refused_model_list_ends_the_connection(scripted: ScriptedServer) -> None:
    scripted.on("/v1/models", lambda _, reply: reply.json({}, 401))
    with pytest.raises(KeyNeeded, match="wants a key"):
        connect(scripted.url)
    with pytest.raises(KeyNeeded, match="does not take this key"):
        connect(scripted.url, KEY)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"data": []}',
        b'{"data": [{"id": 7}]}',
        b'{"data": [{"id": "\\u001b[2J"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"",
    ],
)
def test_what_answers_is_no_such_server(scripted: ScriptedServer, body: bytes) -> None:
    scripted.on("/v1/models", lambda _, reply: reply.whole(body))
    with pytest.raises(RemoteError, match="is it a server with the OpenAI API"):
        connect(scripted.url)


def test_one_of_several_models_has_to_be_chosen(scripted: ScriptedServer) -> None:
    models = {"data": [{"id": "alpha"}, {"id": "beta"}]}
    scripted.on("/v1/models", lambda _, reply: reply.json(models))
    with pytest.raises(ConfigError, match="choose one with --model: alpha, beta"):
        connect(scripted.url)
    with pytest.raises(ConfigError, match="did you mean 'beta'"):
        connect(scripted.url, model="betta")
    with connect(scripted.url, model="beta") as remote:
        assert remote.model == remote.config.model == "beta"


def test_a_redirect_takes_the_key_nowhere(scripted: ScriptedServer) -> None:
    other = ScriptedServer()
    for path in ("/v1/models", COMPLETIONS):
        other.on(path, lambda _, reply: reply.json({}))
    scripted.on(COMPLETIONS, lambda _, reply: reply.json({}, 307, location=f"{other.url}{COMPLETIONS}"))
    assert "not followed" in str(ask(scripted, KEY).error)
    assert other.asked == []
    other.close()


def test_a_proxy_of_the_environment_never_sees_what_stays_on_this_machine(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answers(scripted, chunk("fine", "stop"), "[DONE]")
    assert ask(scripted, KEY).outputs[0].text == "fine"


# ---- refused for the moment


def test_a_busy_server_is_asked_again_when_it_says(scripted: ScriptedServer) -> None:
    times: list[float] = []

    def script(_: Asked, reply: Reply) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            reply.json({"error": {"message": "full"}}, 429, retry_after="0.7")
        elif len(times) == 2:
            reply.json({"error": {"message": "soon", "code": "loading"}}, 503, retry_after="0")
        else:
            reply.stream(chunk("at last", "stop"), "[DONE]")

    scripted.on(COMPLETIONS, script)
    output = ask(scripted)
    assert (output.error, output.outputs[0].text) == (None, "at last")
    assert times[1] - times[0] >= 0.7
    assert len(times) == 3


@pytest.mark.parametrize(("wait", "asked"), [("3600", 1), ("0.1", 5)])
def test_patience_has_an_end(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch, wait: str, asked: int) -> None:
    monkeypatch.setattr(request, "RETRY_S", 0.5)
    scripted.on(COMPLETIONS, lambda _, reply: reply.json({"error": {"message": "full"}}, 429, retry_after=wait))
    output = ask(scripted)
    assert isinstance(output.error, QueueFullError)
    assert "is busy: full" in str(output.error)
    assert 1 <= len(scripted.requests(COMPLETIONS)) <= asked


def test_a_request_that_waits_to_be_sent_again_can_be_cancelled(scripted: ScriptedServer) -> None:
    scripted.on(COMPLETIONS, lambda _, reply: reply.json({}, 429, retry_after="30"))
    with connect(scripted.url) as remote:
        handle = remote.submit("x")
        while not scripted.requests(COMPLETIONS):
            assert not handle.wait(0.01)
        handle.cancel()
        assert handle.result(10).outputs[0].finish_reason == "cancelled"


# ---- short questions


@pytest.mark.parametrize("how", ["huge", "slow", "packed"])
def test_an_answer_without_end_is_not_waited_for(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from yaie_magic.remote import client

    monkeypatch.setattr(client, "MOST_BYTES", 10**6)

    def script(_: Asked, reply: Reply) -> None:
        packed = "content-encoding: gzip\r\n" if how == "packed" else ""
        reply.raw(f"HTTP/1.1 200 OK\r\n{packed}\r\n".encode())
        while True:
            reply.raw(b"1" * (100_000 if how == "huge" else 1))
            time.sleep(0 if how == "huge" else 0.02)

    scripted.on("/endless", script)
    with connect(scripted.url, timeout=0.5) as remote, pytest.raises(RemoteError, match=r"MiB|in time|compresses"):
        remote.client.get_json("/endless")


def test_what_needs_our_server_says_so(scripted: ScriptedServer) -> None:
    with connect(scripted.url) as remote:
        assert remote.kind == "openai"
        for ask_inside in (
            remote.snapshot,
            remote.tape,
            remote.history,
            remote.source,
            lambda: remote.steps_since(0),
            lambda: remote.tokenize("x"),
            lambda: remote.chat_ids([]),
        ):
            with pytest.raises(YaieError, match=r"127\.0\.0\.1:\d+ is not a YAIE server: it has no [a-z ]+$"):
                ask_inside()


# ---- the key


def test_the_key_is_sent_and_never_shown(scripted: ScriptedServer) -> None:
    scripted.on(COMPLETIONS, lambda _, reply: reply.json({"error": {"message": f"bad key {KEY} given"}}, 400))
    with connect(scripted.url, KEY) as remote:
        output = remote.submit("x").result(10)
        assert all(each.headers["authorization"] == f"Bearer {KEY}" for each in scripted.asked)
        shown = [repr(remote), repr(remote.client), repr(output), str(output.error), repr(remote.config), remote.url]
        assert "bad key *** given" in str(output.error)
        scripted.on("/debug/x", lambda _, reply: reply.json({"error": {"message": KEY}}, 500))
        with pytest.raises(RemoteError) as found:
            remote.client.get_json("/debug/x")
        shown += [repr(found.value), str(found.value)]
    assert not [text for text in shown if KEY in text]


def test_text_of_a_server_cannot_move_the_cursor(scripted: ScriptedServer) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07 red\u202e\u2028line\nnext" + "x" * 10_000
    scripted.on(COMPLETIONS, lambda _, reply: reply.json({"error": {"message": hostile}}, 400))
    said = str(ask(scripted).error)
    assert said.isprintable()
    assert len(said) <= 300


def test_the_state_follows_the_server(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_magic.remote.llm.HEALTH_S", 0.1)
    with connect(scripted.url) as remote:
        assert remote.state == "ready"
        scripted.close()
        end = time.monotonic() + 20
        while remote.state == "ready" and time.monotonic() < end:
            time.sleep(0.05)
        assert remote.state == "failed"
    assert isinstance(remote, RemoteLLM)
    assert remote.state == "closed"
