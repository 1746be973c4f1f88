"""Engines, models and tokenizers that fail, and bodies that are wrong: nothing hangs, nothing leaks."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.engine.fakes import FakeRunner, eventually, script
from tests.engine.models import EOS, VOCAB
from tests.server.conftest import Serve
from tests.server.fakes import WEB, Gate, RawStream, counted, endless, events, failing, get, idle, send, slow_tokenizer
from yaie_engine.errors import InvariantError
from yaie_magic.server.background import BackgroundServer

ROUTES = [
    ("/generate", {"prompt": "abc"}),
    ("/batch_generate", {"prompts": ["abc", "def"]}),
    ("/v1/completions", {"prompt": "abc"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "abc"}]}),
]


def health(server: BackgroundServer) -> httpx.Response:
    return get(server, "/health")


def test_a_model_that_never_ends_ends_at_max_tokens(serve: Serve) -> None:
    server = serve()
    endless(server.llm, pause=0)
    for path, body in ROUTES:
        assert send(server, path, {**body, "max_tokens": 20}).status_code == 200
    idle(server)
    counted(server, ok=4)


def test_a_slow_tokenizer_holds_up_nobody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    gate = Gate()
    slow_tokenizer(server.llm, gate, monkeypatch)
    stream = RawStream(server, "/v1/completions", {"prompt": "abc", "max_tokens": 3})
    eventually(lambda: gate.entered == 1)
    start = time.monotonic()
    assert health(server).status_code == 200
    assert send(server, "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 3}).status_code == 200
    assert time.monotonic() - start < 10 and gate.entered == 1
    gate.open()
    stream.read_until(b'"usage"')
    stream.sock.close()
    idle(server)
    counted(server, ok=2)


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_model_that_raises_fails_its_requests_only(serve: Serve, path: str, body: dict[str, Any]) -> None:
    server = serve()
    failing(server.llm, 0, RuntimeError("secret /some/path"))
    answer = send(server, path, {**body, "max_tokens": 5})
    assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text and "Traceback" not in answer.text
    endless(server.llm)
    assert send(server, path, {**body, "max_tokens": 5}).status_code == 200
    assert health(server).status_code == 200
    idle(server)
    counted(server, ok=1, error=1)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_model_that_raises_in_a_stream(serve: Serve, path: str) -> None:
    """The stream has begun: an event tells of the error, then the connection closes."""
    server = serve()
    failing(server.llm, 4, RuntimeError("secret"))
    stream = RawStream(server, path, {"prompt": "abc", "max_tokens": 50, "stream": True})
    data = stream.read_to_end()
    *texts, last = events(data)
    assert last["error"].keys() == {"message", "type", "param", "code", "request_id"}
    assert texts and last["error"]["type"] == "server_error" and b"[DONE]" not in data and b"secret" not in data
    idle(server)
    counted(server, error=1)


def test_a_model_that_raises_before_the_stream_begins_has_a_status(serve: Serve) -> None:
    server = serve()
    failing(server.llm, 0, RuntimeError("secret"))
    assert send(server, "/v1/completions", {"prompt": "abc", "stream": True}).status_code == 500
    idle(server)


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_tokenizer_that_raises(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    server = serve()
    with monkeypatch.context() as patch:

        def encode(*_: Any, **__: Any) -> list[int]:
            raise RuntimeError("secret")

        patch.setattr(server.llm.tokenizer, "encode", encode)
        answer = send(server, path, body)
        assert answer.status_code == 500 and "secret" not in answer.text
        assert send(server, "/tokenize", {"prompt": "x"}).status_code == 500
    assert send(server, path, {**body, "max_tokens": 2}).status_code == 200
    idle(server)
    counted(server, ok=1, error=1)


def test_characters_whose_bytes_come_one_by_one(serve: Serve) -> None:
    """The model says the bytes of "\u00f1\u20ac" as five tokens: no piece holds a broken character."""
    server = serve()
    vocab = server.llm.tokenizer.hf.get_vocab()
    from yaie_engine.byte_alphabet import token_to_bytes

    by_byte = {token_to_bytes(token): token_id for token, token_id in vocab.items() if token_id < 256}
    ids = [by_byte[bytes([byte])] for byte in "\u00f1\u20ac".encode()]
    server.llm._engine.runner = FakeRunner(VOCAB, script(ids, EOS))  # type: ignore[assignment]
    body = {"prompt": "x", "max_tokens": 10, "stream": True}
    pieces = [event for event in events(RawStream(server, "/generate", body).read_to_end()) if event != "[DONE]"]
    texts = [piece["text"] for piece in pieces if piece["text"]]
    assert "".join(texts) == "\u00f1\u20ac" and "\ufffd" not in "".join(texts)
    whole = send(server, "/v1/completions", {"prompt": "x", "max_tokens": 10, "logprobs": 0}).json()["choices"][0]
    assert whole["text"] == "\u00f1\u20ac" and whole["finish_reason"] == "stop"
    assert whole["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 2]
    idle(server)


BAD_BODIES = {
    "empty object": b"{}",
    "empty prompt": b'{"prompt": ""}',
    "prompt one character too long": json.dumps({"prompt": "x" * 201}).encode(),
    "max_tokens 0": b'{"prompt": "x", "max_tokens": 0}',
    "max_tokens one too many": b'{"prompt": "x", "max_tokens": 256}',
    "negative temperature": b'{"prompt": "x", "temperature": -0.5}',
    "negative top_k": b'{"prompt": "x", "top_k": -2}',
    "huge top_k": b'{"prompt": "x", "top_k": %d}' % 2**70,
    "tiny temperature": b'{"prompt": "x", "temperature": 1e-40}',
    "not json": b"prompt=x",
}


def test_ten_bad_bodies(serve: Serve) -> None:
    server = serve(max_prompt_chars=200)
    for count, (name, data) in enumerate(BAD_BODIES.items(), 1):
        headers = {"content-type": "application/json"}
        answer = WEB.post(f"{server.url}/generate", content=data, headers=headers)
        assert answer.status_code == 422, (name, answer.text)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code", "request_id"}
        counted(server, rejected=count)
        assert server.num_active == 0 and not server.llm.running()
    assert send(server, "/generate", {"prompt": "x" * 200, "max_tokens": 1}).status_code == 200
    assert send(server, "/generate", {"prompt": "x", "max_tokens": 255, "temperature": 1e-30}).status_code == 200
    idle(server)


def test_an_engine_that_dies_fails_what_waits_and_shows_in_health(serve: Serve) -> None:
    server = serve({"max_num_seqs": 1})
    failing(server.llm, 10, InvariantError(["a block is lost"]))
    running = RawStream(server, "/v1/completions", {"prompt": "abc", "max_tokens": 200, "stream": True})
    running.read_until(b"data: ")
    waiting = RawStream(server, "/v1/completions", {"prompt": "def", "max_tokens": 200})
    *_, last = events(running.read_to_end())
    assert last["error"]["code"] == "engine_dead"
    assert b" 503 " in waiting.read_until(b"}")[:20]
    eventually(lambda: health(server).status_code == 503, 10)
    assert health(server).json()["status"] == "failed"
    answer = send(server, "/v1/completions", {"prompt": "abc"})
    assert answer.status_code == 503 and answer.json()["error"]["type"] == "service_unavailable"
    assert server.running, "a notebook goes on, and so does its server"
    counted(server, error=3)


def test_a_closed_engine_takes_its_server_along(serve: Serve) -> None:
    server = serve()
    server.llm.close()
    eventually(lambda: not server.running, 10)


def test_a_cancelled_request_is_not_to_be_repeated(serve: Serve) -> None:
    server = serve()
    endless(server.llm)
    stream = RawStream(server, "/v1/completions", {"prompt": "abc", "max_tokens": 200})
    eventually(lambda: bool(server.llm.running()), 10)
    server.llm.cancel()
    data = stream.read_until(b"}}")
    assert b" 503 " in data[:20] and b"x-should-retry: false" in data
    counted(server, cancelled=1)
