"""`%yaie serve` in an IPython shell: the printed program works, the key is needed, the server goes with its engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.plain_shell import plain_shell
from tests.server.fakes import WEB
from yaie_magic import serving
from yaie_magic.session import session

pytestmark = pytest.mark.xdist_group("serve_magic")  # one shell, whose state goes from test to test


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A shell with the extension and the bundled model."""
    with plain_shell(tmp_path_factory.mktemp("ipython"), YAIE_NOTEBOOK="static") as found:
        found.run_line_magic("yaie", "load tiny --num-blocks 512")
        yield found
        serving.stop_all()


@pytest.fixture
def say(shell: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a cell; gives back what it printed, errors included."""

    def run(cell: str) -> str:
        capsys.readouterr()
        shell.run_cell(cell)
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


def test_the_printed_program_works_and_the_key_is_needed(say: Any) -> None:
    shown = say("%yaie serve")
    first, _, *program = shown.strip().splitlines()
    server = serving.server_of("default")
    assert (
        server is not None
        and server.running
        and first == f"tiny is served on {server.url}; %yaie serve --stop ends it."
    )
    key = server.config.api_key
    assert key is not None and len(key) >= 32 and key in shown
    assert WEB.get(f"{server.url}/v1/models").status_code == 401
    answer = say("\n".join(program))
    assert "error" not in answer.lower() and answer.strip()
    assert "is served" in say("%yaie serve") and serving.server_of("default") is server
    assert say("%yaie serve --stop").strip() == "tiny is not served any more."
    assert say("%yaie serve --stop").strip() == "tiny is not served."
    assert session.get().llm.state == "ready"


def test_each_server_has_its_own_key(say: Any) -> None:
    keys = set()
    for _ in range(2):
        say("%yaie serve --port 0")
        server = serving.server_of("default")
        assert server is not None
        keys.add(server.config.api_key)
        say("%yaie serve --stop")
    assert len(keys) == 2


def test_options_that_are_wrong_are_one_line(say: Any) -> None:
    for line, reason in (("--port 70000", "port=70000"), ("--api-key x", "--api-key"), ("--prot 1", "--port")):
        shown = say(f"%yaie serve {line}")
        assert reason in shown and "Traceback" not in shown
    assert serving.server_of("default") is None


def test_a_failed_engine_leaves_kernel_and_server_alive(say: Any) -> None:
    from yaie_engine.errors import InvariantError

    say("%yaie serve")
    server = serving.server_of("default")
    llm = session.get().llm
    run = llm._engine.runner.run

    def broken(*given: Any, **named: Any) -> Any:
        raise InvariantError(["a block is lost"])

    assert server is not None and run is not None
    llm._engine.runner.run = broken  # type: ignore[method-assign]
    headers = {"x-api-key": server.config.api_key or ""}
    answer = WEB.post(f"{server.url}/generate", json={"prompt": "x"}, headers=headers)
    assert answer.status_code == 503
    eventually(lambda: WEB.get(f"{server.url}/health").status_code == 503, 10)
    assert say("print(1 + 1)").strip() == "2"
    say("%yaie restart")
    eventually(lambda: not server.running, 10)
    assert serving.server_of("default") is None
    assert "is served on" in say("%yaie serve")


def test_unload_takes_the_server_along(say: Any, tmp_path: Path) -> None:
    server = serving.server_of("default")
    assert server is not None
    say("%yaie unload --force")
    eventually(lambda: not server.running, 10)
    assert "no engine is loaded" in say("%yaie serve")
