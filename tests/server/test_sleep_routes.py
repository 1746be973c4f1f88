"""/sleep, /wake_up and /is_sleeping: the engine behind the server gives its memory back, and everybody hears of it."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from tests.engine.fakes import eventually
from tests.server.conftest import Serve
from tests.server.fakes import counted, endless, get, idle, send
from tests.server.test_fuzz import CHECKS
from yaie_engine import LLM, AsleepError, BusyError, ConfigError, SamplingParams
from yaie_magic.remote import connect
from yaie_magic.remote.sleep import sleep as remote_sleep
from yaie_magic.remote.sleep import wake_up as remote_wake_up
from yaie_magic.server import ServerConfig
from yaie_magic.server.app import create_app
from yaie_magic.server.background import BackgroundServer

ASK = {"prompt": "abc", "max_tokens": 4, "temperature": 0}
GREEDY = SamplingParams(temperature=0, max_tokens=8)
WORK = [
    ("/v1/completions", ASK),
    ("/v1/completions", {**ASK, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
    ("/generate", ASK),
    ("/batch_generate", {"prompts": ["a", "b"], "max_tokens": 2}),
]


def asleep(server: BackgroundServer) -> Any:
    return get(server, "/is_sleeping").json()["is_sleeping"]


def test_sleep_and_wake_over_http(serve: Serve) -> None:
    server = serve()
    text = send(server, "/generate", ASK).json()["text"]
    assert asleep(server) is False
    answer = send(server, "/sleep?level=2", {})
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert told["is_sleeping"] is True and told["level"] == 2 and told["already"] is False
    assert told["freed"]["weights"] == "dropped" and told["freed"]["kv_bytes"] > 0 < told["freed"]["weight_bytes"]
    assert asleep(server) is True and server.llm.is_sleeping
    assert send(server, "/sleep", {}).json()["already"] is True
    woken = send(server, "/wake_up", {}).json()
    assert woken["is_sleeping"] is False and woken["seconds"] > 0 and not woken["already"]
    assert send(server, "/wake_up", {}).json()["already"] is True
    assert send(server, "/generate", ASK).json()["text"] == text
    idle(server)


def test_asleep_work_is_refused_by_its_code_and_the_rest_answers(serve: Serve) -> None:
    server = serve()
    send(server, "/generate", ASK)
    assert bare_post(server, "/sleep").status_code == 200
    for path, body in WORK:
        answer = send(server, path, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (503, "asleep", "service_unavailable"), path
        assert "%yaie wake" in error["message"] and answer.headers["x-should-retry"] == "false"
    health = get(server, "/health")
    assert health.status_code == 200 and health.json()["status"] == "asleep"
    assert health.json()["memory"]["kv_blocks"] == 0 and health.json()["active_requests"] == 0
    assert get(server, "/debug/snapshot").json()["state"] == "asleep"
    assert send(server, "/tokenize", {"prompt": "abc"}).json()["count"] == 3
    for path in ("/v1/models", "/metrics", "/debug/recording", "/debug/requests"):
        assert get(server, path).status_code == 200, path
    send(server, "/wake_up", {})
    assert get(server, "/health").json()["status"] == "ok"
    idle(server)
    counted(server, ok=1, error=len(WORK))


def bare_post(server: BackgroundServer, path: str) -> httpx.Response:
    """As curl does it: without a body."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.post(server.url + path)


def test_running_requests_are_counted_or_cancelled(serve: Serve) -> None:
    server = serve()
    endless(server.llm)
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(send(server, "/generate", {"prompt": "x", "max_tokens": 200, "ignore_eos": True}))

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: bool(server.llm.running()), 10)
    busy = send(server, "/sleep", {})
    assert busy.status_code == 409 and busy.json()["error"]["code"] == "requests_running"
    assert busy.json()["error"]["message"].startswith("1 request is running")
    assert send(server, "/sleep?force=true", {}).json()["num_cancelled"] == 1
    thread.join(30)
    assert answers[0].status_code == 503 and answers[0].json()["error"]["code"] == "cancelled"
    send(server, "/wake_up", {})
    idle(server)
    counted(server, cancelled=1)


@pytest.mark.parametrize("query", ["level=3", "level=", "level=1.0", "level=two", "force=maybe", "level=1&force=2"])
def test_wrong_values_are_named(server: BackgroundServer, query: str) -> None:
    answer = send(server, f"/sleep?{query}", {})
    assert answer.status_code == 400 and "allowed are" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] in ("level", "force")
    assert not server.llm.is_sleeping


def test_waking_without_memory_is_503_and_it_stays_asleep(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    send(server, "/sleep", {})
    with monkeypatch.context() as patch:
        patch.setattr("yaie_engine.runner.free_memory", lambda device: 1)
        answer = send(server, "/wake_up", {})
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "asleep"
    assert "are needed" in answer.json()["error"]["message"] and asleep(server) is True
    assert send(server, "/wake_up", {}).status_code == 200


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("[Errno 13] Permission denied: '/srv/my models/one/config.json'", "Permission denied: 'config.json'"),
        ("one: no file in directory /srv/secret/one.", "one: no file in directory one."),
        (r"cannot open 'C:\srv\one\config.json'", "cannot open 'config.json'"),
        (
            "one/config.json is damaged; 3 KiB/s, and/or POST /wake_up",
            "one/config.json is damaged; 3 KiB/s, and/or POST /wake_up",
        ),
    ],
)
def test_what_keeps_it_asleep_names_no_folder(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, found: str, told: str
) -> None:
    server = serve()
    send(server, "/sleep?level=2", {})

    def unreadable(*_: object) -> None:
        raise OSError(found)

    with monkeypatch.context() as patch:
        patch.setattr("yaie_engine.model_weights.read_source", unreadable)
        answer = send(server, "/wake_up", {})
    assert answer.status_code == 503 and told in answer.json()["error"]["message"]
    assert not any(word in answer.text for word in ("srv", "secret", "my models"))
    send(server, "/wake_up", {})


def test_the_routes_are_there_where_the_debug_routes_are(tiny: LLM) -> None:
    routes = {"/sleep", "/wake_up", "/is_sleeping"}
    here = {getattr(route, "path", "") for route in create_app(tiny).routes}
    elsewhere = ServerConfig(host="0.0.0.0", api_key="k" * 20, access_log="off")  # noqa: S104
    assert routes <= here
    assert not routes & {getattr(route, "path", "") for route in create_app(tiny, elsewhere).routes}


@pytest.mark.parametrize(("path", "method"), [("/sleep", "POST"), ("/wake_up", "POST"), ("/is_sleeping", "GET")])
def test_answers_are_those_of_the_schema(serve: Serve, path: str, method: str) -> None:
    server = serve()
    operation = schemathesis.openapi.from_dict(create_app(server.llm).openapi())[path][method]

    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(max_examples=6, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.validate_response(case.call(base_url=server.url), checks=CHECKS)

    ask()
    server.llm.wake_up()


def test_a_client_far_away_puts_it_to_sleep_and_wakes_it(serve: Serve) -> None:
    server = serve()
    with connect(server.url) as llm:
        text = llm.submit("abc", GREEDY).result(30).outputs[0].text
        with pytest.raises(ConfigError, match="level=7"):
            remote_sleep(llm, 7)
        report = remote_sleep(llm, 2)
        assert report.level == 2 and report.freed.weights == "dropped" and report.freed.kv_bytes > 0
        assert remote_sleep(llm).already
        failed = llm.submit("abc").result(30)
        assert isinstance(failed.error, AsleepError)
        assert not remote_wake_up(llm).already and remote_wake_up(llm).already
        assert llm.submit("abc", GREEDY).result(30).outputs[0].text == text
        endless(server.llm)
        running = llm.submit("x")
        eventually(lambda: bool(server.llm.running()), 10)
        with pytest.raises(BusyError, match="1 request is running") as caught:
            remote_sleep(llm)
        assert caught.value.count == 1
        assert remote_sleep(llm, force=True).num_cancelled == 1
        assert running.wait(30)
        remote_wake_up(llm)
