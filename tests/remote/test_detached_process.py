"""The process of a detached engine: its start, its failures, its end. The model is invented, the process is real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from yaie_engine import EngineConfig
from yaie_engine.errors import ConfigError, ModelLoadError, YaieError
from yaie_magic.detached import launch, registry
from yaie_magic.detached.attendance import Attendance
from yaie_magic.detached.folder import PrivateFolder, folder_path
from yaie_magic.detached.host import Host
from yaie_magic.detached.messages import Speaker, error_of
from yaie_magic.detached.record import EngineRecord
from yaie_magic.interrupt import Interrupted
from yaie_magic.options import UsageProblem
from yaie_magic.server.config import ServerConfig

ROOT = Path(__file__).parents[2]
CONFIG = EngineConfig(model="tiny", num_blocks=64)
Stage = tuple[str, float | None]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder; whatever runs at the end of a test is ended."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(launch, "COMMAND", [sys.executable, "-P", "-m", "tests.remote.detached_child"])
    yield tmp_path / "yaie"
    for found in registry.look().engines.values():
        launch.end(found.record)


def start(
    name: str, idle_timeout: float = 3600.0, report: Callable[[str, float | None], None] | None = None
) -> EngineRecord:
    return launch.launch(name, CONFIG, idle_timeout, report)


def ask(record: EngineRecord, path: str, key: str | None = None) -> httpx.Response:
    return httpx.get(f"{record.url}{path}", headers={"x-api-key": key or record.key}, trust_env=False, timeout=30)


def admitted(record: EngineRecord, key: str | None = None) -> bool:
    """Whether the key opens it: then it says that there is no such route."""
    return ask(record, "/nothing", key).status_code == 404


def children() -> set[psutil.Process]:
    """Of this process; other tests may have left it some, such as that of the chat templates."""
    return set(psutil.Process().children())


def until(seen: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_it_runs_by_itself_and_ends_when_told(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[Stage] = []
    record = start("one", report=lambda what, share: stages.append((what, share)))
    assert stages == [("reading weights", 0.5)]
    process = psutil.Process(record.pid)
    assert os.getsid(record.pid) == record.pid and os.getpgid(record.pid) != os.getpgid(0)
    assert process.terminal() is None
    assert admitted(record) and not admitted(record, "no key")
    assert record.key not in " ".join(process.cmdline()) and record.key not in str(process.environ())
    listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert [c.laddr.ip for c in listening] == ["127.0.0.1"]
    log = runtime / "one.log"
    assert log.stat().st_mode & 0o777 == 0o600 and record.key not in log.read_text()
    assert "what a library prints" in log.read_text()
    with pytest.raises(UsageProblem, match="called one runs already; %yaie attach one"):
        start("one")
    looks = iter([None])
    monkeypatch.setattr(launch, "find", lambda name: next(looks, registry.find(name)))  # both begin at once
    with pytest.raises(UsageProblem, match="called one runs already; %yaie attach one"):
        start("one")
    assert sorted(os.listdir(runtime)) == ["one.json", "one.log"] and "what a library prints" in log.read_text()
    asked = time.time()
    assert admitted(record)
    until(lambda: time.time() - registry.look().engines["one"].idle_s >= asked)
    assert launch.end(record) and not process.is_running() and not os.listdir(runtime)
    assert launch.end(record)  # there is nothing to end any more


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("bad", ModelLoadError, "the file is damaged"),
        pytest.param("odd", YaieError, "KernelError: it did not compile", marks=pytest.mark.full),
        pytest.param("surprise", YaieError, "RuntimeError: no luck", marks=pytest.mark.full),
        ("crash", YaieError, "the process of crash died while it loaded; the last line of its log: about to fall"),
    ],
)
def test_a_load_that_fails_arrives_and_leaves_nothing(
    runtime: Path, name: str, kind: type[YaieError], text: str
) -> None:
    before = children()
    with pytest.raises(kind) as failed:
        start(name)
    assert type(failed.value) is kind and str(failed.value).startswith(text) and "\n" not in str(failed.value)
    assert not os.listdir(runtime) and children() <= before


def test_errors_arrive_as_what_they_were() -> None:
    heard, said = os.pipe()
    speaker = Speaker(said)
    speaker.stage("reading weights", 0.5)
    speaker.failed(ConfigError("block_size=0"))
    speaker.ready()  # it has said its last word
    with os.fdopen(heard) as lines:
        stage, failed = (json.loads(line) for line in lines)
    assert stage == {"stage": "reading weights", "share": 0.5}
    assert type(error_of(failed)) is ConfigError and str(error_of(failed)) == "block_size=0"
    assert str(error_of({"failed": "InvariantError", "text": "x"})) == "InvariantError: x"
    assert str(error_of({"failed": "YaieError", "text": "x"})) == "x"


def test_nobody_listens_any_more() -> None:
    heard, said = os.pipe()
    os.close(heard)
    speaker = Speaker(said)
    speaker.stage("reading weights", None)  # no error: the engine goes on
    speaker.ready()


@pytest.mark.parametrize("name", ["slow", pytest.param("deaf", marks=pytest.mark.full)])
def test_an_interrupted_load_ends_the_process(runtime: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Also one that does not listen, and whatever is pressed meanwhile."""
    monkeypatch.setattr(launch, "SOON_S", 1.0)
    pids: list[int] = []

    def pressed(what: str, share: float | None) -> None:
        if not pids:
            pids.append(registry.look().engines[name].record.pid)
            os.kill(os.getpid(), signal.SIGINT)
            if name == "deaf":
                threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    with pytest.raises(Interrupted, match=f"load of {name} interrupted; its process was ended"):
        start(name, report=pressed)
    assert name != "deaf" or time.monotonic() - began > 1
    assert not psutil.pid_exists(pids[0]) and not os.listdir(runtime)


def test_stopped_by_another_while_it_loads(runtime: Path) -> None:
    others: list[threading.Thread] = []

    def stop(what: str, share: float | None) -> None:
        if not others:
            record = registry.look().engines["slow"].record
            others.append(threading.Thread(target=launch.end, args=(record,)))
            others[0].start()

    with pytest.raises(UsageProblem, match="it was stopped while it loaded"):
        start("slow", report=stop)
    others[0].join(60)
    assert not os.listdir(runtime)


def test_killed_and_found_gone(runtime: Path) -> None:
    before = children()
    record = start("one")
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: not record.runs)
    until(lambda: children() <= before)  # nor is it left as a zombie
    found = registry.look()
    assert not found.engines and "one" in found.notes[0] and str(runtime / "one.log") in found.notes[0]
    assert os.listdir(runtime) == ["one.log"]


def test_an_engine_that_fails_ends_its_process_and_leaves_its_log(runtime: Path) -> None:
    record = start("mortal")
    until(lambda: not record.runs)
    assert os.listdir(runtime) == ["mortal.log"]
    assert "the engine failed" in (runtime / "mortal.log").read_text()


def test_it_ends_by_itself_when_nobody_asks(runtime: Path) -> None:
    """Neither /health nor a wrong key keeps it alive, a request does."""
    record = start("one", idle_timeout=0.8)
    began = time.monotonic()
    last = began
    while time.monotonic() - began < 1.1:
        last = time.monotonic()
        assert admitted(record)
        time.sleep(0.05)
    while record.runs:
        assert time.monotonic() - last < 60
        try:
            ask(record, "/health")
            admitted(record, "wrong key")
        except httpx.TransportError:
            break
        time.sleep(0.05)
    until(lambda: not record.runs)
    assert time.monotonic() - last >= 0.8 and not os.listdir(runtime)


def test_one_that_lost_its_file_does_not_stay_for_ever(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"name": "one", "model": "tiny", "pid": 4242, "started": 1.0, "url": "http://127.0.0.1:9"}
    record = EngineRecord(**values, key="a-key-of-sixteen-characters", idle_timeout=0, config={})  # type: ignore[arg-type]
    with PrivateFolder() as folder:
        folder.write_new("one.json", record.to_bytes())
    host = Host(ServerConfig(port=0), lambda _: None, record, Speaker(os.dup(1)))  # type: ignore[arg-type,return-value]
    host.serving = True
    monkeypatch.setattr(Attendance, "idle_s", property(lambda self: 10.0**6))
    assert not host.ended()
    monkeypatch.setattr("yaie_magic.detached.host.NOTE_S", -1.0)
    (runtime / "one.json").unlink()
    assert host.ended()
    (runtime / "one.json").touch()  # another engine has taken the name
    os.utime(runtime / "one.json", (5, 5))
    assert host.ended() and (runtime / "one.json").stat().st_mtime == 5


@pytest.mark.full
def test_it_outlives_the_process_that_started_it(runtime: Path) -> None:
    """Killed together with its whole group, which the engine has left."""
    program = (
        "import sys, time; from yaie_magic.detached import launch; from yaie_engine import EngineConfig; "
        "launch.COMMAND[-1] = 'tests.remote.detached_child'; "
        "launch.launch('one', EngineConfig(num_blocks=64), 3600.0); print('ready', flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True, env={**os.environ}
    )
    assert starter.stdout is not None and starter.stdout.readline() == b"ready\n"
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate(timeout=30)
    record = registry.look().engines["one"].record
    assert admitted(record)


def test_no_process_can_be_started(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "COMMAND", ["/nowhere/python"])
    with pytest.raises(YaieError, match="no process can be started for one: No such file"):
        start("one")
    assert not os.listdir(runtime)


def test_none_is_started_where_no_name_fits() -> None:
    with pytest.raises(UsageProblem, match="cannot name"):
        start("a/b")
    assert "yaie" in str(folder_path())
