"""Who may ask: the key on every route, the Host list, foreign origins, and addresses that others can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from yaie_engine import LLM
from yaie_engine.errors import ConfigError
from yaie_magic.server import ServerConfig, create_app
from yaie_magic.server.listen import bind

KEY = "correct-horse-battery"
URL = "http://127.0.0.1:8000"


def ask(app: FastAPI, method: str, path: str, url: str = URL, **given: Any) -> httpx.Response:
    """One request, in process."""

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url) as client:
            return await client.request(method, path, **given)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def guarded(tiny: LLM) -> Iterator[FastAPI]:
    yield create_app(tiny, ServerConfig(api_key=KEY, access_log="off"))


@pytest.fixture(scope="module")
def open_app(tiny: LLM) -> Iterator[FastAPI]:
    yield create_app(tiny, ServerConfig(access_log="off", allowed_hosts=["box.lan"]))


def walk(app: FastAPI) -> list[tuple[str, str]]:
    """Every method of every route."""
    routes = [route for route in app.routes if isinstance(route, Route) or hasattr(route, "methods")]
    return [(method, route.path) for route in routes for method in sorted(getattr(route, "methods", None) or ())]


def test_every_route_but_health_needs_the_key(guarded: FastAPI) -> None:
    found = walk(guarded)
    assert {path for _, path in found} == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/generate",
        "/batch_generate",
        "/tokenize",
        "/detokenize",
        "/health",
        "/metrics",
        "/debug/snapshot",
        "/debug/tree.svg",
        "/debug/blocks.svg",
        "/debug/recording",
        "/debug/requests",
        "/debug/cancel",
    }
    for method, path in found:
        for headers in ({}, {"authorization": "Bearer wrong-key"}, {"x-api-key": KEY + "x"}, {"authorization": KEY}):
            status = ask(guarded, method, path, headers=headers).status_code
            assert status == (200 if path == "/health" else 401), (method, path, headers)


@pytest.mark.parametrize("path", ["/nothing", "/openapi.json", "/docs", "/health/", "//health", "/v1/models/../health"])
def test_what_is_no_route_needs_the_key_too(guarded: FastAPI, path: str) -> None:
    assert ask(guarded, "GET", path).status_code == 401


@pytest.mark.parametrize(
    "headers", [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"authorization": f"bearer {KEY}"}]
)
def test_the_key_opens(guarded: FastAPI, headers: dict[str, str]) -> None:
    assert ask(guarded, "GET", "/v1/models", headers=headers).status_code == 200
    assert ask(guarded, "GET", "/nothing", headers=headers).status_code == 404


def test_a_refusal_has_the_form_of_every_error(guarded: FastAPI) -> None:
    answer = ask(guarded, "GET", "/v1/models")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["code"] == "invalid_api_key" and answer.headers["www-authenticate"] == "Bearer"
    assert error["request_id"] == answer.headers["x-request-id"]


GOOD_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.0.0.1:9999",
    "localhost",
    "localhost:8000",
    "LOCALHOST:8000",
    "[::1]",
    "[::1]:8000",
    "box.lan",
    "box.lan:8000",
]
BAD_HOSTS = [
    "",
    "evil.example",
    "evil.example:8000",
    "127.0.0.1:evil.com",
    "127.0.0.1.evil.com",
    "127.0.0.1@evil.com",
    "evil.com@127.0.0.1",
    "evil.com#127.0.0.1",
    "127.0.0.1/evil",
    "127.0.0.1:0",
    "127.0.0.1:65536",
    "127.0.0.1:-1",
    "127.0.0.1:8000:8000",
    "localhost.",
    "localhost.evil.com",
    "xlocalhost",
    "localhost evil.com",
    "localhost,evil.com",
    "::1",
    "[::1",
    "[::1].evil.com",
    "[::1]evil:80",
    "[::2]",
    "[127.0.0.1]",
    "0.0.0.0",  # noqa: S104
    "127.0.0.2",
    "127.1",
    "2130706433",
    "sub.box.lan",
    "box.lan.",
    "169.254.169.254",
    "127.0.0.1\t",
]


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_hosts_on_the_list(open_app: FastAPI, host: str) -> None:
    assert ask(open_app, "GET", "/metrics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_other_hosts_are_403_everywhere(open_app: FastAPI, host: str) -> None:
    for path in ("/health", "/metrics", "/v1/models"):
        assert ask(open_app, "GET", path, headers={"host": host}).status_code == 403


def test_two_host_headers_are_403(open_app: FastAPI) -> None:
    headers = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert ask(open_app, "GET", "/health", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8000"}, 200),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "http://127.0.0.1:8000.evil.com"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_foreign_pages_are_403(open_app: FastAPI, headers: dict[str, str], status: int) -> None:
    answer = ask(open_app, "GET", "/metrics", headers=headers)
    assert answer.status_code == status
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_foreign_page_is_refused_before_its_body_is_read(open_app: FastAPI) -> None:
    async def body() -> Any:
        raise AssertionError("the body was read")
        yield b""

    answer = ask(open_app, "POST", "/generate", headers={"origin": "https://evil.example"}, content=body())
    assert answer.status_code == 403


def test_an_allowed_origin_gets_its_headers(tiny: LLM) -> None:
    app = create_app(tiny, ServerConfig(api_key=KEY, access_log="off", allowed_origins=["https://lab.example"]))
    origin = {"origin": "https://lab.example"}
    asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = ask(app, "OPTIONS", "/generate", headers=asked)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://lab.example"
    assert ask(app, "GET", "/v1/models", headers=origin).status_code == 401
    answer = ask(app, "GET", "/v1/models", headers={**origin, "x-api-key": KEY})
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://lab.example"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_other_content_types_are_refused(open_app: FastAPI, kind: str) -> None:
    headers = {"content-type": kind}
    assert ask(open_app, "POST", "/generate", content=b'{"prompt": "x"}', headers=headers).status_code == 422
    assert ask(open_app, "POST", "/tokenize", content=b'{"prompt": "x"}', headers=headers).status_code == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.example"])  # noqa: S104
def test_an_address_that_others_reach_needs_a_key(tiny: LLM, host: str) -> None:
    """Whoever starts the app: it refuses in its lifespan."""
    config = ServerConfig(host=host, access_log="off")
    with pytest.raises(ConfigError, match="needs a key"):
        bind(config)
    app = create_app(tiny, config)

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match="needs a key"):
        asyncio.run(start())


def test_an_app_that_somebody_made_listen_elsewhere_refuses(open_app: FastAPI) -> None:
    """The configuration says loopback, the connection came to another address."""
    answer = ask(open_app, "GET", "/v1/models", url="http://192.0.2.7:8000", headers={"host": "127.0.0.1"})
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "key_needed"


def test_debug_routes_elsewhere_only_when_asked_for(tiny: LLM) -> None:
    for asked in (False, True):
        config = ServerConfig(host="0.0.0.0", api_key=KEY, debug_routes=asked, access_log="off")  # noqa: S104
        app = create_app(tiny, config)
        assert ask(app, "GET", "/debug/snapshot").status_code == 401
        status = ask(app, "GET", "/debug/snapshot", headers={"x-api-key": KEY}).status_code
        assert status == (200 if asked else 404)


def test_all_addresses_take_addresses_as_host_but_no_foreign_names(tiny: LLM) -> None:
    app = create_app(tiny, ServerConfig(host="0.0.0.0", api_key=KEY, access_log="off"))  # noqa: S104
    assert ask(app, "GET", "/health", headers={"host": "192.0.2.7:8000"}).status_code == 200
    assert ask(app, "GET", "/health", headers={"host": "evil.example"}).status_code == 403


def test_the_key_is_in_no_repr() -> None:
    assert KEY not in repr(ServerConfig(api_key=KEY)) + str(ServerConfig(api_key=KEY))


@pytest.mark.parametrize("key", ["short", "with space inside", "caf\u00e9-caf\u00e9"])
def test_odd_keys_are_refused(key: str) -> None:
    with pytest.raises(ConfigError):
        ServerConfig(api_key=key)
