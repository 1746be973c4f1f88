"""One engine with the bundled model and one server over it for all tests; where a test breaks one, its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.engine.fakes import assert_idle, eventually
from tests.engine.models import save_model
from tests.one_thread import one_thread as one_thread
from tests.server.fakes import OPEN
from yaie_engine import LLM
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

Serve = Callable[..., BackgroundServer]


@pytest.fixture(scope="session")
def tiny() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=1024) as llm:
        yield llm


@pytest.fixture(scope="session")
def shared_server(tiny: LLM) -> Iterator[BackgroundServer]:
    server = BackgroundServer(tiny, ServerConfig(port=0, access_log="off"))
    yield server
    server.stop()
    assert not server.running


@pytest.fixture
def server(shared_server: BackgroundServer) -> Iterator[BackgroundServer]:
    """The server over `tiny`; whatever a test did, nothing may run after it."""
    yield shared_server
    assert_idle(shared_server.llm)
    eventually(lambda: shared_server.num_active == 0)


@pytest.fixture(scope="session")
def http(shared_server: BackgroundServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def post(http: httpx.Client, server: BackgroundServer) -> Callable[..., httpx.Response]:
    """POST JSON to a path: `post("/generate", prompt="x")`."""
    return lambda path, **body: http.post(path, json=body)


@pytest.fixture
def client(server: BackgroundServer) -> Iterator[openai.OpenAI]:
    """The official client, which must not repeat what failed."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer of bytes."""
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Servers of a test's own, each over its own engine with cheap boundaries."""
    made: list[BackgroundServer] = []

    def start(settings: dict[str, Any] | None = None, **config: Any) -> BackgroundServer:
        values = {"block_size": 4, "num_blocks": 64, "dtype": "float32", **(settings or {})}
        llm = LLM(values.pop("model", str(folder)), **values)
        made.append(BackgroundServer(llm, ServerConfig(**{"port": 0, "access_log": "off", **config})))
        return made[-1]

    yield start
    while OPEN:
        OPEN.pop().close()
    for server in made:
        server.stop()
        if server.llm.state == "ready":
            assert_idle(server.llm)
        server.llm.close()
