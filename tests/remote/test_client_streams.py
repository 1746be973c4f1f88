"""Streams that go wrong: broken off, malformed or without end. What has come is kept."""

from __future__ import annotations

import gzip
import json
import threading
import time
from typing import Any

import pytest

from tests.remote.asking import COMPLETIONS, answers, ask
from tests.remote.scripted import Asked, Reply, ScriptedServer, chunk
from yaie_engine import RequestTimeout
from yaie_magic.remote import RemoteError, connect, events, request

_ROW = '{"choices": [{"index": 0, "token_ids": [1], "token_logprobs": [{"1": {"logprob": %s, "rank": 1}}]}]}'


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([chunk("so far")], "broke off"),
        ([chunk("so far"), "{not json"], "no JSON object"),
        ([chunk("so far"), "[1]"], "no JSON object"),
        ([chunk("so far"), '{"choices": 7}'], "choices"),
        ([chunk("so far"), '{"choices": [{"index": 5, "text": "x"}]}'], "index"),
        ([chunk("so far"), '{"choices": [{"index": true, "text": "x"}]}'], "index"),
        ([chunk("so far"), '{"choices": [{"index": 0, "text": ["x"]}]}'], "text"),
        ([chunk("so far"), '{"choices": [{"index": 0, "token_ids": [-1]}]}'], "token ids"),
        ([chunk("so far"), '{"choices": [{"index": 0, "token_logprobs": [{"a": 1}]}]}'], "log-prob"),
        ([chunk("so far"), _ROW % "NaN"], "log-prob"),
        ([chunk("so far"), _ROW % ("1" + "0" * 400)], "log-prob"),
        ([chunk("so far"), '{"error": {"message": "it broke"}}'], "it broke"),
        ([chunk("so far"), "[" * 200_000], "no JSON object"),
    ],
)
def test_a_stream_that_goes_wrong_keeps_its_text(scripted: ScriptedServer, events: list[Any], words: str) -> None:
    answers(scripted, *events)
    output = ask(scripted)
    assert isinstance(output.error, RemoteError)
    assert words in str(output.error)
    assert len(str(output.error)) < 400
    assert output.outputs[0].text == "so far"
    assert output.outputs[0].finish_reason == "error"


def test_a_server_that_does_not_count_choices(scripted: ScriptedServer) -> None:
    answers(scripted, chunk("one", "stop"), "[DONE]")
    output = ask(scripted, n=3)
    assert "gave 1 of 3 completions" in str(output.error)
    assert output.outputs[0].text == "one"


@pytest.mark.parametrize("name", ["\x1b[2J", "", 7, None, "x" * 200, "two words"])
def test_a_name_that_could_not_be_shown_is_not_taken(scripted: ScriptedServer, name: Any) -> None:
    answers(scripted, {**chunk("a"), "id": name}, {**chunk("b", "stop"), "id": "good-1"})
    output = ask(scripted)
    assert (output.request_id, output.error, output.outputs[0].text) == ("good-1", None, "ab")


def test_a_connection_that_dies(scripted: ScriptedServer) -> None:
    def script(_: Asked, reply: Reply) -> None:
        reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n")
        reply.event(chunk("so far"))

    scripted.on(COMPLETIONS, script)
    output = ask(scripted)
    assert "broke" in str(output.error)
    assert output.outputs[0].text == "so far"


def test_bytes_that_are_no_text_do_no_harm(scripted: ScriptedServer) -> None:
    def script(_: Asked, reply: Reply) -> None:
        reply.stream()
        reply.raw(b'\xef\xbb\xbfdata: {"choices": [{"index": 0, "text": "skipped, the line has another name"}]}\n\n')
        reply.raw(b'data: {"choices": [{"index": 0, "text": "a\xff\xfeb"}]}\r\n\r\n')
        reply.raw(b'event: x\ndata: {"choices": [{"index": 0,\ndata: "text": "\\ud800", "finish_reason": "stop"}]}\n\n')

    scripted.on(COMPLETIONS, script)
    output = ask(scripted)
    assert output.error is None
    assert output.outputs[0].text == "a\ufffd\ufffdb?"


def test_comments_without_end_do_not_hold_a_request(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "IDLE_S", 0.3)

    def script(_: Asked, reply: Reply) -> None:
        reply.stream(chunk("so far"))
        while True:
            reply.raw(b": still here\n\n")
            time.sleep(0.05)

    scripted.on(COMPLETIONS, script)
    output = ask(scripted)
    assert "stopped answering" in str(output.error)
    assert output.outputs[0].text == "so far"


def test_a_line_without_end_is_given_up(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LONGEST_LINE", 100_000)
    sent: list[int] = []

    def script(_: Asked, reply: Reply) -> None:
        reply.stream(chunk("so far"))
        reply.raw(b"data: ")
        while True:
            reply.raw(b"x" * 10_000)
            sent.append(10_000)

    scripted.on(COMPLETIONS, script)
    output = ask(scripted)
    assert "is not read" in str(output.error)
    assert output.outputs[0].text == "so far"


@pytest.mark.parametrize("how", ["plain", "gzip"])
def test_an_answer_that_is_no_stream(scripted: ScriptedServer, how: str) -> None:
    body = json.dumps(chunk("x", "stop")).encode()
    headers = {"content_type": "application/json"}
    if how == "gzip":
        body, headers = gzip.compress(b"data: x" * 1000), {"content_type": "text/event-stream", "content_encoding": how}
    scripted.on(COMPLETIONS, lambda _, reply: reply.whole(body, **headers))
    assert "does not stream" in str(ask(scripted).error)


def test_cancelling_closes_the_stream(scripted: ScriptedServer) -> None:
    gone = threading.Event()

    def script(_: Asked, reply: Reply) -> None:
        reply.stream(chunk("so far"))
        if reply.gone():
            gone.set()

    scripted.on(COMPLETIONS, script)
    with connect(scripted.url) as remote:
        handle = remote.submit("x")
        assert next(iter(handle)) == "so far"
        handle.cancel()
        output = handle.result(10)
        assert gone.wait(10)
    assert (output.outputs[0].finish_reason, output.outputs[0].text) == ("cancelled", "so far")


def test_the_time_of_a_request_is_kept_here_where_the_server_does_not(scripted: ScriptedServer) -> None:
    def script(_: Asked, reply: Reply) -> None:
        reply.stream(chunk("so far"))
        reply.gone()

    scripted.on(COMPLETIONS, script)
    output = ask(scripted, timeout=0.2)
    assert isinstance(output.error, RequestTimeout)
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("so far", "timeout")
    assert "timeout" not in scripted.requests(COMPLETIONS)[0].body
