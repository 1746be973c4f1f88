"""What no request may do: bring a template, make the server open an address, send forms, or have itself repeated."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from tests.server.test_guard import KEY, ask
from yaie_engine import LLM
from yaie_magic.server import ServerConfig, create_app

SECRET = "the-prompt-that-nobody-may-repeat"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
TEXT: dict[str, Any] = {"prompt": "x", "max_tokens": 1}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": TEXT,
    "/generate": TEXT,
    "/batch_generate": {"prompts": ["x"], "max_tokens": 1},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1]},
    "/debug/cancel": {"request_id": "none"},
}


@pytest.fixture(scope="module")
def app(tiny: LLM) -> Iterator[FastAPI]:
    yield create_app(tiny, ServerConfig())


def test_every_route_that_takes_a_body_is_here(app: FastAPI) -> None:
    asked = {path for path, each in app.openapi()["paths"].items() if "requestBody" in each.get("post", {})}
    assert asked == set(BODIES)


@pytest.mark.parametrize("path", BODIES)
def test_no_request_brings_a_template(app: FastAPI, path: str) -> None:
    """Routes without a conversation may pass over the field, and say so; none of them renders it."""
    answer = ask(app, "POST", path, json={**BODIES[path], "chat_template": "{{ 6 * 7 }}"})
    if path == "/debug/cancel":
        assert answer.status_code in (200, 400, 404)
    elif answer.status_code == 200:
        assert "chat_template" in answer.headers["x-yaie-ignored"]
    else:
        assert answer.status_code in (400, 422) and answer.json()["error"]["param"] == "chat_template"


@pytest.mark.parametrize(
    "name", ["chat_template", "tokenize", "add_special_tokens", "messages", "bos_token", "raise_exception", "__class__"]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_variables_of_a_template_are_those_of_a_list(app: FastAPI, path: str, name: str) -> None:
    answer = ask(app, "POST", path, json={"messages": CHAT["messages"], "chat_template_kwargs": {name: "x"}})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "chat_template_kwargs"


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", BODIES)
def test_forms_are_not_read(app: FastAPI, path: str, kind: str) -> None:
    """A page of another site could send them without asking its browser."""
    body = b'--x\r\ncontent-disposition: form-data; name="prompt"; filename="f"\r\n\r\nx\r\n--x--\r\n'
    for content in (body, json.dumps(BODIES[path]).encode()):
        answer = ask(app, "POST", path, content=content, headers={"content-type": kind})
        assert answer.status_code in (400, 422) and "application/json" in answer.json()["error"]["message"]


ELSEWHERE = [
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "https://evil.invalid/x.png",
    "\\\\evil\\x",
]


@pytest.mark.parametrize("place", ELSEWHERE)
def test_the_server_opens_no_address(app: FastAPI, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an address may stand in a request: nothing is connected to, no name is looked up."""
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, lambda *_: pytest.fail("connected"))
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, lambda *_, **__: pytest.fail("looked up"))
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": place}},
        {"type": "input_audio", "input_audio": {"data": place, "format": "wav"}},
        {"type": "file", "file": {"file_id": place}},
        {"type": "text", "text": place},
    ]
    for part in parts:
        answer = ask(
            app, "POST", "/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": [part]}]}
        )
        assert answer.status_code == (200 if part["type"] == "text" else 400)
    for more in (
        {"documents": [{"title": "t", "text": place}]},
        {"model": place},
        {"user": place},
        {"logit_bias": place},
    ):
        assert ask(app, "POST", "/v1/chat/completions", json={**CHAT, **more}).status_code < 500
    assert ask(app, "POST", "/generate", json={"prompt": place, "max_tokens": 1}).status_code == 200
    assert ask(app, "GET", f"/{place}").status_code == 404


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/static/x", "/../../etc/passwd", "/v1/files", "/%2e%2e/etc", "/favicon.ico"]
)
def test_there_are_no_routes_to_files(app: FastAPI, path: str) -> None:
    assert ask(app, "GET", path).status_code == 404


BAD: list[dict[str, Any]] = [
    {"prompt": SECRET, "max_tokens": -1},
    {"prompt": SECRET, "temperature": SECRET},
    {"prompt": [SECRET]},
    {"prompt": SECRET, "stop": [1]},
    {"prompt": SECRET * 100_000},
    {"prompt": SECRET, "model": SECRET},
    {"prompt": SECRET, "seed": 10**30},
    {"prompt": {"text": SECRET}},
    {"messages": [{"role": SECRET, "content": SECRET}]},
    {"messages": [{"role": "user", "content": {"text": SECRET}}]},
    {"messages": [{"role": "tool", "content": SECRET, "tool_call_id": 7}]},
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate", "/tokenize"])
def test_refusals_repeat_no_text_no_path_and_no_traceback(
    app: FastAPI, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for body in BAD:
        answer = ask(app, "POST", path, json={"max_tokens": 1, **body})
        if answer.status_code == 200:
            continue
        assert answer.status_code < 500
        text = answer.json()["error"]["message"]
        values = [value for name, value in body.items() if name not in ("prompt", "messages")]
        if SECRET not in map(str, values):
            assert SECRET not in text, (path, body)
        assert "Traceback" not in text and "/site-packages/" not in text and ".py" not in text and "0x" not in text
    assert SECRET not in caplog.text


def test_a_key_in_the_address_opens_nothing_and_is_not_logged(tiny: LLM, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "yaie")
    guarded = create_app(tiny, ServerConfig(api_key=KEY))
    for name in ("api_key", "key", "token", "access_token", "authorization"):
        assert ask(guarded, "GET", f"/v1/models?{name}={KEY}").status_code == 401
    assert ask(guarded, "GET", "/v1/models", headers={"cookie": f"key={KEY}"}).status_code == 401
    assert "/v1/models" in caplog.text and KEY not in caplog.text
