"""Generated requests: no 5xx, every answer as the published schema says; good streams beside them do not notice."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.engine.fakes import assert_idle
from tests.server.fakes import WEB, events
from tests.server.test_guard import walk
from yaie_engine import LLM, SamplingParams
from yaie_magic.server import ServerConfig
from yaie_magic.server.app import create_app
from yaie_magic.server.background import BackgroundServer

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
POSTS = ["/v1/chat/completions", "/v1/completions", "/generate", "/batch_generate", "/tokenize", "/detokenize"]
POSTS += ["/debug/cancel"]
GETS = ["/v1/models", "/health", "/metrics", "/debug/snapshot", "/debug/tree.svg", "/debug/blocks.svg"]
QUERIES = ["/debug/recording", "/debug/requests"]
ASLEEP = ["/sleep", "/wake_up", "/is_sleeping"]
"""Asked with generated requests in test_sleep_routes.py, of an engine that may sleep."""
FEW = pytest.param(8, id="few")
MANY = pytest.param(150, id="many", marks=pytest.mark.full)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[BackgroundServer]:
    """A context of 24 tokens, so that no request takes long."""
    with LLM(str(folder), block_size=4, max_model_len=24, num_blocks=2048, dtype="float32") as llm:
        found = BackgroundServer(llm, ServerConfig(port=0, access_log="off"))
        yield found
        found.stop()
        assert_idle(llm)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", POSTS)
def test_generated_bodies(server: BackgroundServer, path: str, mode: GenerationMode, count: int) -> None:
    fuzz(server, path, "POST", mode, count)


@pytest.mark.parametrize("path", GETS)
def test_generated_gets(server: BackgroundServer, path: str) -> None:
    fuzz(server, path, "GET", GenerationMode.POSITIVE, 1)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", QUERIES)
def test_generated_queries(server: BackgroundServer, path: str, mode: GenerationMode) -> None:
    fuzz(server, path, "GET", mode, 8)


def fuzz(server: BackgroundServer, path: str, method: str, mode: GenerationMode, count: int) -> None:
    """Ask with generated requests and compare each answer with the schema."""
    schema = schemathesis.openapi.from_dict(create_app(server.llm).openapi())
    operation = schema[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def ask(case: Any) -> None:
        response = case.call(base_url=server.url)
        late = response.status_code == 504 and isinstance(case.body, dict) and bool(case.body.get("timeout"))
        # A request that gives itself too little time is told so.
        case.validate_response(
            response, checks=[check for check in CHECKS if not (late and check is not_a_server_error)]
        )

    ask()


WORDS = [
    "prompt",
    "max_tokens",
    "temperature",
    "top_k",
    "n",
    "stop",
    "stream",
    "logit_bias",
    "seed",
    "messages",
    "model",
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**70,
    1e308,
    1e-320,
    "",
    "\ud800",
    "x" * 3000,
    [],
    [[]],
    {},
    {"a": [1]},
    [None],
]


def bad_body(chance: random.Random) -> bytes:
    """JSON that is wrong in one way or another, or no JSON."""
    import json

    body: dict[str, Any] = {"prompt": "x" if chance.random() < 0.5 else [1, 2], "max_tokens": 1}
    for _ in range(chance.randint(1, 3)):
        body[chance.choice(WORDS)] = chance.choice(VALUES)
    data = json.dumps(body).encode()
    cut = chance.random()
    return data[: chance.randrange(len(data))] if cut < 0.1 else bytes(reversed(data)) if cut < 0.15 else data


@pytest.mark.parametrize(("count", "streams"), [(150, 3), pytest.param(5000, 8, marks=pytest.mark.full)])
def test_bad_requests_leave_good_streams_alone(server: BackgroundServer, count: int, streams: int) -> None:
    """While some stream again and again, many bad requests come: texts stay the same, no answer is a 5xx."""
    chance = random.Random(7)
    print("seed 7")
    params = SamplingParams(temperature=0, max_tokens=16)
    prompts = [f"good {i}" for i in range(streams)]
    wanted = [output.outputs[0].text for output in server.llm.generate(prompts, params, use_tqdm=False)]
    ended = threading.Event()
    wrong: list[str] = []

    def good(index: int) -> None:
        body = {"prompt": prompts[index], "temperature": 0, "max_tokens": 16, "stream": True}
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:  # noqa: S501
            while not ended.is_set():
                answer = client.post("/generate", json=body)
                text = "".join(event["text"] for event in events(answer.content) if event != "[DONE]")
                if text != wanted[index]:
                    wrong.append(answer.text)

    threads = [threading.Thread(target=good, args=(index,)) for index in range(streams)]
    for thread in threads:
        thread.start()
    statuses: dict[int, int] = {}
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:  # noqa: S501
        for _ in range(count):
            path = chance.choice([each for each in POSTS if each != "/debug/cancel"])  # it is there to end streams
            answer = client.post(path, content=bad_body(chance), headers={"content-type": "application/json"})
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    ended.set()
    for thread in threads:
        thread.join(60)
    print(statuses)
    assert not wrong and max(statuses) < 500, statuses
    assert WEB.get(f"{server.url}/health").status_code == 200


def test_every_route_is_asked_with_generated_requests(server: BackgroundServer) -> None:
    """By the table of routes: one that the schema leaves out would be asked by nobody."""
    app = create_app(server.llm)
    table = set(walk(app))
    documented = {(method.upper(), path) for path, each in app.openapi()["paths"].items() for method in each}
    asked = {("POST", path) for path in POSTS} | {("GET", path) for path in (*GETS, *QUERIES)}
    assert table == documented == asked | {("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")}
    assert {path for _, path in table - asked} == set(ASLEEP)


def test_text_nested_without_end_inside_a_body_is_a_bad_request(server: BackgroundServer) -> None:
    """The arguments of a tool call are JSON in a text, so that the bound on the body's own depth does not see them."""
    call = {"type": "function", "function": {"name": "f", "arguments": "[" * 100_000}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "x"}]
    answer = WEB.post(f"{server.url}/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert answer.status_code == 400 and "arguments" in answer.json()["error"]["message"]
