"""Clients that leave, do not read, or come when the server goes: blocks are free again, each request counts once."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from tests.engine.fakes import eventually
from tests.server.conftest import Serve
from tests.server.fakes import (
    Gate,
    RawStream,
    counted,
    endless,
    events,
    get,
    idle,
    in_state,
    send,
    slow_tokenizer,
)
from yaie_magic.server.background import BackgroundServer

LONG: dict[str, Any] = {"prompt": "abcdefgh", "max_tokens": 200, "ignore_eos": True}
PATHS = [
    ("/generate", {**LONG, "stream": True}),
    ("/v1/completions", {**LONG, "stream": True}),
    ("/v1/completions", {**LONG, "prompt": ["abcd", "efgh"], "n": 2, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 200, "stream": True}),
]


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_a_stream_whose_client_leaves(serve: Serve, path: str, body: dict[str, Any]) -> None:
    server = serve()
    runner = endless(server.llm)
    stream = RawStream(server, path, body)
    stream.read_until(b"data: ", 4)
    stream.reset()
    idle(server)
    assert runner.steps < 190
    counted(server, cancelled=1)


def test_an_answer_whose_client_leaves(serve: Serve) -> None:
    server = serve()
    runner = endless(server.llm, pause=0.01)
    stream = RawStream(server, "/v1/completions", LONG)
    in_state(server.llm, "decode")
    stream.reset()
    idle(server)
    assert runner.steps < 190
    counted(server, cancelled=1)


def test_leaving_in_each_state(serve: Serve) -> None:
    """Waiting, in a chunked prefill, in decode, preempted."""
    server = serve({"max_num_seqs": 1, "long_prefill_token_threshold": 8, "num_blocks": 64})
    gate = Gate()
    runner = endless(server.llm)
    runner.before = lambda _: time.sleep(0.02)
    first = RawStream(server, "/generate", {**LONG, "prompt": "x" * 50, "stream": True})
    in_state(server.llm, "prefill")
    second = RawStream(server, "/generate", {**LONG, "stream": True})
    in_state(server.llm, "waiting")
    second.reset()
    eventually(lambda: len(server.llm.running()) == 1, 10)
    first.reset()
    idle(server)
    gate.open()
    counted(server, cancelled=2)


def test_leaving_while_preempted(serve: Serve) -> None:
    server = serve({"num_blocks": 40})
    endless(server.llm)
    streams = [
        RawStream(server, "/generate", {**LONG, "prompt": "ab" * (i + 1), "max_tokens": 120, "stream": True})
        for i in range(3)
    ]
    in_state(server.llm, "preempted")
    for stream in streams:
        stream.reset()
    idle(server)
    counted(server, cancelled=3)


def test_leaving_while_the_prompt_is_encoded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is queued when nobody waits for it any more: it is cancelled at once."""
    server = serve()
    gate = Gate()
    slow_tokenizer(server.llm, gate, monkeypatch)
    endless(server.llm)
    stream = RawStream(server, "/generate", {**LONG, "stream": True})
    eventually(lambda: gate.entered == 1)
    assert get(server, "/health", timeout=5).json()["status"] == "ok"
    stream.reset()
    eventually(lambda: server.num_active == 0)
    gate.open()
    counted(server, cancelled=1)
    time.sleep(0.1)
    idle(server)


def test_a_client_that_does_not_read(serve: Serve) -> None:
    """After the deadline its request is cancelled; the text waits in one place, so memory stays flat."""
    server = serve({"num_blocks": 600}, send_timeout=0.5)
    endless(server.llm, pause=0)
    body = {**LONG, "max_tokens": 240, "n": 8, "logprobs": 20, "stream": True}
    stream = RawStream(server, "/v1/completions", body, small_buffers=True)
    stream.read_until(b"data: ")
    others = send(server, "/v1/completions", {"prompt": "y", "max_tokens": 3})
    assert others.status_code == 200
    eventually(lambda: server.num_active == 0, 60)
    idle(server)
    counted(server, cancelled=1, ok=1)
    stream.sock.close()


def test_a_client_that_does_not_read_a_whole_answer(serve: Serve) -> None:
    """The connection ends, and what was kept for it goes."""
    server = serve({"num_blocks": 600}, send_timeout=0.5)
    endless(server.llm, pause=0)
    body = {**LONG, "max_tokens": 240, "n": 8, "logprobs": 40}
    stream = RawStream(server, "/v1/completions", body, small_buffers=True)
    counted(server, ok=1)
    connections = server._server.server_state.connections
    eventually(lambda: not connections, 10)
    with pytest.raises((EOFError, ConnectionError)):
        stream.read_until(b"never in it")


def test_two_requests_with_one_id_are_kept_apart(serve: Serve) -> None:
    server = serve()
    headers = {"x-request-id": "same"}
    answers: dict[str, httpx.Response] = {}

    def ask(prompt: str) -> None:
        body = {"prompt": prompt, "max_tokens": 30, "temperature": 0, "request_id": "same"}
        answers[prompt] = send(server, "/v1/completions", body, headers=headers)

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for prompt, answer in answers.items():
        again = send(server, "/v1/completions", {"prompt": prompt, "max_tokens": 30, "temperature": 0})
        assert answer.json()["choices"][0]["text"] == again.json()["choices"][0]["text"]
    assert len({answer.headers["x-request-id"] for answer in answers.values()}) == 2


def test_a_full_queue_is_429_with_a_time(serve: Serve) -> None:
    server = serve({"max_num_seqs": 1, "max_waiting": 1})
    endless(server.llm)
    streams = [RawStream(server, "/generate", {**LONG, "stream": True})]
    in_state(server.llm, "decode")
    streams.append(RawStream(server, "/generate", {**LONG, "stream": True}))
    in_state(server.llm, "waiting")
    answer = send(server, "/generate", LONG)
    assert answer.status_code == 429 and answer.json()["error"]["code"] == "queue_full"
    assert int(answer.headers["retry-after"]) >= 1
    health = get(server, "/health").json()
    assert (health["active_requests"], health["queue_length"]) == (1, 1)
    for stream in streams:
        stream.reset()
    idle(server)
    assert send(server, "/generate", {**LONG, "max_tokens": 2}).status_code == 200
    counted(server, busy=1, cancelled=2, ok=1)


def test_all_prompts_of_a_request_are_queued_or_none(serve: Serve) -> None:
    server = serve({"max_num_seqs": 1, "max_waiting": 2})
    gate = Gate()
    runner = endless(server.llm)
    runner.before = gate
    answer = send(server, "/batch_generate", {"prompts": ["a", "b", "c", "d", "e"], "max_tokens": 2})
    assert answer.status_code == 429
    gate.open()
    idle(server)
    counted(server, busy=1)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_shutdown_ends_streams_and_answers(serve: Serve, path: str) -> None:
    server = serve()
    endless(server.llm, pause=0.01)
    stream = RawStream(server, path, {**LONG, "stream": True})
    stream.read_until(b"data: ", 2)
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(send(server, path, LONG).status_code))
    waiting.start()
    eventually(lambda: len(server.llm.running()) == 2, 10)
    start = time.monotonic()
    server.stop()
    assert time.monotonic() - start < 5 and not server.running
    *_, last = events(stream.read_to_end())
    assert last["error"]["code"] == "cancelled"
    waiting.join(10)
    assert answers == [503]
    eventually(lambda: not server.llm.running(), 10)
    with pytest.raises(httpx.ConnectError):
        send(server, path, LONG)


def test_the_port_is_free_after_a_stop(serve: Serve) -> None:
    from urllib.parse import urlsplit

    from yaie_magic.server import ServerConfig

    server = serve()
    server.stop()
    again = BackgroundServer(server.llm, ServerConfig(port=urlsplit(server.url).port or 0, access_log="off"))
    assert send(again, "/generate", {"prompt": "x", "max_tokens": 1}).status_code == 200
    again.stop()


def test_notebook_and_http_run_in_one_batch(serve: Serve) -> None:
    server = serve()
    endless(server.llm, pause=0.01)
    handle = server.llm.submit("abc", server.llm.config.default_params.replace(max_tokens=60, ignore_eos=True))
    answer = send(server, "/generate", {**LONG, "max_tokens": 10}).json()
    handle.cancel()
    batches = [{entry.request_id for entry in step.batch} for step in server.llm.snapshot().steps]
    assert {handle.request_id, answer["request_id"]} in batches
