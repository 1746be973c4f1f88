"""A server that follows a script for each test; one engine with the bundled model and one server over it for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.fakes import assert_idle
from tests.notebook.shell_run import Run
from tests.one_thread import one_thread as one_thread
from tests.plain_shell import plain_shell
from tests.remote.scripted import ScriptedServer
from yaie_engine import LLM
from yaie_magic.remote import RemoteLLM, connect
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

KEY = "a-key-that-nobody-may-see"


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """The engine behind the server."""
    with LLM("tiny", num_blocks=512) as found:
        yield found


@pytest.fixture(scope="session")
def own_server(llm: LLM) -> Iterator[BackgroundServer]:
    """Our own server, with a key."""
    server = BackgroundServer(llm, ServerConfig(port=0, access_log="off", api_key=KEY))
    yield server
    server.stop()


@pytest.fixture
def remote(own_server: BackgroundServer) -> Iterator[RemoteLLM]:
    """The engine, from outside; whatever a test did, nothing runs after it."""
    with connect(own_server.url, KEY) as found:
        yield found
    assert_idle(own_server.llm)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """A shell without any engine."""
    monkeypatch.delenv("YAIE_API_KEY", raising=False)
    with plain_shell(tmp_path, YAIE_NOTEBOOK="static") as shell:
        yield Run(shell, capsys)
