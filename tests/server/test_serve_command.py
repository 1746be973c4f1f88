"""`yaie serve` as a process: the port first, health while it loads, signals, exit codes, the access log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.fakes import WEB, RawStream, events
from yaie_magic.server.config import ServerConfig

START = """
import os, sys, threading, time
from yaie_magic import cli, loading
build, hold = loading.build_llm, os.environ.pop("HOLD", "")
def held(config, progress):
    if hold:
        progress("reading a riddle", None)
        while not os.path.exists(hold):
            time.sleep(0.01)
    if config.seed == 13:
        raise RuntimeError("no luck")
    llm = build(config, progress)
    if config.seed == 14:
        from yaie_engine.errors import InvariantError
        run, steps = llm._engine.runner.run, []
        def unlucky(*given, **named):
            steps.append(0)
            if len(steps) > 4:
                raise InvariantError(["a block is lost"])
            return run(*given, **named)
        llm._engine.runner.run = unlucky
    return llm
loading.build_llm = held
sys.exit(cli.main(["serve", *sys.argv[1:]]))
"""


class Served:
    """A process and its address."""

    def __init__(self, folder: Path, *words: str, hold: bool = False, **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.gate = folder / f"gate-{self.port}"
        # Files, since nobody reads while it runs: a full pipe would hold it up.
        self.out, self.err = folder / f"out-{self.port}", folder / f"err-{self.port}"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("YAIE_")}
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, "--port", str(self.port), "--num-blocks", "512", *words],
                env={**plain, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOLD": str(self.gate) if hold else ""}
                | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and body; (0, {}) when nobody answers."""
        try:
            answer = WEB.get(f"{self.url}/health")
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, answer.json()

    def wait(self, status: int, seconds: float = 90) -> None:
        """Until /health has this status, or the process ended."""
        end = time.monotonic() + seconds
        while self.health()[0] != status and self.process.poll() is None:
            assert time.monotonic() < end, self.err.read_text()
            time.sleep(0.05)

    def end(self, seconds: float = 60) -> tuple[int, str, str]:
        """Exit code and outputs."""
        code = self.process.wait(seconds)
        return code, self.out.read_text(), self.err.read_text()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(*words: str, **given: Any) -> Served:
        made.append(Served(tmp_path, *words, **given))
        return made[-1]

    yield start
    for served in made:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait(30)


def test_loads_behind_an_open_port_then_serves_then_ends_on_sigterm(run: Callable[..., Served]) -> None:
    served = run("--access-log", "json", hold=True, YAIE_API_KEY="a-key-from-outside")
    served.wait(503)
    while served.health()[1].get("stage") != "reading a riddle":
        time.sleep(0.05)
    assert served.health()[1]["status"] == "loading"
    headers = {"x-api-key": "a-key-from-outside"}
    body = {"prompt": "SECRET PROMPT", "max_tokens": 3}
    early = WEB.post(f"{served.url}/generate", json=body, headers=headers)
    assert early.status_code == 503 and early.json()["error"]["code"] == "loading" and early.headers["retry-after"]
    served.gate.touch()
    served.wait(200)
    answer = WEB.post(f"{served.url}/generate", json={**body, "zebra_crossing": 1}, headers=headers)
    assert answer.status_code == 200
    assert WEB.post(f"{served.url}/generate", json=body).status_code == 401
    served.process.send_signal(signal.SIGTERM)
    code, out, err = served.end()
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    (found,) = (line for line in lines if line["path"] == "/generate" and line["status"] == 200)
    assert found["request_id"] == answer.headers["x-request-id"] and found["duration_ms"] > 0
    assert found["method"] == "POST" and found["outcome"] == "ok"
    assert found["engine_requests"] == [answer.json()["request_id"]]
    assert "SECRET" not in out + err and "a-key-from-outside" not in out + err
    assert '"api_key": "***"' in err and "ignored fields: zebra_crossing" in err
    assert not _listens(served.port)


def test_sigint_during_a_stream_ends_it_and_the_process(run: Callable[..., Served]) -> None:
    served = run()
    served.wait(200)
    body = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    stream = RawStream(served, "/generate", body)  # type: ignore[arg-type]
    stream.read_until(b"data: ", 3)
    served.process.send_signal(signal.SIGINT)
    *_, last = events(stream.read_to_end())
    stream.sock.close()
    assert last["error"]["code"] == "cancelled"
    code, out, err = served.end()
    assert code == 130, err
    assert out.splitlines()[-1].startswith("POST /generate 200 ")
    assert not _listens(served.port)


def test_a_failed_engine_shows_in_health_and_ends_with_1(run: Callable[..., Served]) -> None:
    served = run("--seed", "14")
    served.wait(200)
    seen: list[int] = []

    def watch() -> None:
        while served.process.poll() is None:
            seen.append(served.health()[0])
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer = WEB.post(f"{served.url}/v1/completions", json={"prompt": "x", "max_tokens": 50, "ignore_eos": True})
    assert answer.status_code == 503
    code, _, err = served.end()
    watcher.join()
    assert code == 1 and "yaie: the engine failed" in err
    assert 503 in seen


def test_a_load_that_fails_ends_with_1(run: Callable[..., Served]) -> None:
    code, _, err = run("--seed", "13").end()
    assert code == 1 and err.splitlines()[-1] == "yaie: RuntimeError: no luck"


def test_a_load_that_hangs_ends_with_its_stage(run: Callable[..., Served]) -> None:
    code, _, err = run("--start-timeout", "0.5", hold=True).end()
    assert code == 1 and "no progress" in err and "'reading a riddle'" in err.splitlines()[-1]


def test_a_model_that_is_none_ends_with_one_line(run: Callable[..., Served], tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path)).end()
    assert code in (1, 2) and err.splitlines()[-1].startswith("yaie: ")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "needs a key"),  # noqa: S104
        (["--host", "not.a.host.invalid"], "host=not.a.host.invalid"),
        (["--port", "70000"], "port=70000"),
        (["--api-key", "x"], "unknown option '--api-key'"),
        (["--max-body-bytes", "1"], "max_body_bytes=1"),
        (["--prot", "1"], "did you mean '--port'?"),
    ],
)
def test_usage_errors_end_with_2(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from yaie_magic import cli

    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)
    if "not.a.host.invalid" in words:
        monkeypatch.setenv("YAIE_API_KEY", "long-enough-key")
    assert cli.main(["serve", *words]) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]


def test_a_taken_port_ends_with_2_before_a_model_loads(capsys: pytest.CaptureFixture[str]) -> None:
    from yaie_magic import cli

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_the_server_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie_magic.settings import engine_settings, server_settings

    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "serve.yaml"
    file.write_text("model: tiny\nserver:\n  port: 9001\n  api_key: from-the-file\n  allowed_hosts: [a.lan]\n")
    assert engine_settings(str(file), {}).model == "tiny"
    monkeypatch.setenv("YAIE_API_KEY", "from-the-environment")
    found = server_settings(str(file), {"strict": True})
    assert found == ServerConfig(port=9001, api_key="from-the-environment", allowed_hosts=["a.lan"], strict=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
