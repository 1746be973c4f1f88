"""The private folder and its files: who may read them, what is believed, what is removed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from yaie_engine.errors import YaieError
from yaie_magic.detached import launch, registry
from yaie_magic.detached.folder import PrivateFolder, folder_path
from yaie_magic.detached.record import EngineRecord, check_name, uptime_at_start
from yaie_magic.options import UsageProblem

KEY = "a-key-that-nobody-must-see"


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the engines, empty."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with PrivateFolder() as folder:
        return folder.path


@pytest.fixture
def innocent() -> Iterator[psutil.Process]:
    """A process that is no engine."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield psutil.Process(child.pid)
    child.kill()
    child.communicate(timeout=30)


def record(process: psutil.Process, **changes: Any) -> EngineRecord:
    values: dict[str, Any] = {
        "name": "default",
        "model": "tiny",
        "pid": process.pid,
        "started": process.create_time(),
        "url": "http://127.0.0.1:9",
        "key": KEY,
        "idle_timeout": 3600,
        "config": {"model": "tiny"},
    }
    return EngineRecord(**{**values, **changes})


def write(found: EngineRecord) -> None:
    with PrivateFolder() as folder:
        folder.write_new(f"{found.name}.json", found.to_bytes())


def test_what_is_written_is_found_and_private(runtime: Path, innocent: psutil.Process) -> None:
    mine = record(innocent)
    write(mine)
    found = registry.look()
    assert found.notes == () and found.engines["default"].record == mine
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert (runtime / "default.json").stat().st_mode & 0o777 == 0o600
    assert os.listdir(runtime) == ["default.json"]  # nothing half-written beside it
    with pytest.raises(FileExistsError):
        write(record(innocent, model="other"))
    assert KEY not in repr(mine) and KEY not in str(mine) and KEY not in repr(found)


def test_the_number_of_a_process_is_no_proof(runtime: Path, innocent: psutil.Process) -> None:
    """The engine died, and its number went to a process that has nothing to do with it."""
    stale = record(innocent, started=innocent.create_time() - 60)
    write(stale)
    assert launch.end(stale) and innocent.is_running()
    write(stale)
    found = registry.look()
    assert not found.engines and "is gone; its file was removed" in found.notes[0] and "default" in found.notes[0]
    assert innocent.is_running() and not os.listdir(runtime)


def test_a_clock_that_was_set_does_not_lose_it(runtime: Path, innocent: psutil.Process) -> None:
    """The start of a process, in seconds since 1970, moves with the clock of the machine."""
    before = record(innocent, started=innocent.create_time() - 3600, uptime=uptime_at_start(innocent.pid))
    assert before.runs
    assert not before.replace(uptime=uptime_at_start(innocent.pid) - 1).runs
    assert not before.replace(uptime=None).runs


def test_a_process_of_another_user_is_not_it(
    runtime: Path, innocent: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = record(innocent)
    assert mine.runs
    nobody = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: nobody)
    assert not mine.runs


def test_a_process_that_ended_and_was_not_waited_for_is_gone(innocent: psutil.Process) -> None:
    mine = record(innocent)
    assert mine.runs
    innocent.kill()
    end = time.monotonic() + 30
    while innocent.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
    assert not mine.runs


def test_a_link_is_not_followed(runtime: Path, tmp_path: Path, innocent: psutil.Process) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(record(innocent).to_bytes())
    elsewhere.chmod(0o600)
    (runtime / "default.json").symlink_to(elsewhere)
    found = registry.look()
    assert not found.engines and "default.json is not read" in found.notes[0]
    with pytest.raises(YaieError, match="remove it"):
        registry.find("default")
    assert elsewhere.exists()


def test_a_folder_that_is_a_link_or_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "yaie").symlink_to(tmp_path / "real")
    with pytest.raises(YaieError, match="cannot be used"), PrivateFolder():
        pass
    (tmp_path / "yaie").unlink()
    (tmp_path / "yaie").mkdir()
    (tmp_path / "yaie").chmod(0o750)
    with pytest.raises(YaieError, match=r"mode 750\); chmod 700 it"), PrivateFolder():
        pass


def test_a_file_that_others_may_have_read_or_written_is_refused(runtime: Path, innocent: psutil.Process) -> None:
    write(record(innocent))
    (runtime / "default.json").chmod(0o640)
    assert "mode 640); chmod 600 it" in registry.look().notes[0]


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 1},
        {"pid": "x"},
        {"pid": True},
        {"started": -1},
        {"started": float("nan")},
        {"url": "http://evil.example:80"},
        {"url": "http://127.0.0.1:80@evil.example"},
        {"url": "http://127.0.0.1:80\nx"},
        {"url": "http://127.0.0.1:0"},
        {"url": "http://127.0.0.1:65536"},
        {"key": ""},
        {"key": "a key\r\nHost: x"},
        {"name": "../default"},
        {"name": "another"},
        {"config": []},
        {"surprise": 1},
        None,
    ],
)
def test_a_damaged_file_is_said_and_its_key_is_not(
    runtime: Path, innocent: psutil.Process, change: dict[str, Any] | None
) -> None:
    content = json.loads(record(innocent).to_bytes())
    data = json.dumps({**content, **change}).encode() if change else record(innocent).to_bytes()[:-9]
    with PrivateFolder() as folder:
        folder.write_new("default.json", data)
    found = registry.look()
    assert not found.engines
    assert "default.json is not used" in found.notes[0] and "remove it" in found.notes[0]
    assert KEY not in found.notes[0]


def test_a_file_without_end_is_refused(runtime: Path) -> None:
    with PrivateFolder() as folder:
        folder.write_new("default.json", b" " * 300_000)
        assert folder.read_end("default.json", 5) == b" " * 5 and folder.read_end("nothing", 5) is None
    assert "larger than" in registry.look().notes[0]


def test_what_is_no_file_hides_no_other(runtime: Path, innocent: psutil.Process) -> None:
    (runtime / "a.json").mkdir()
    os.mkfifo(runtime / "b.json", 0o600)
    write(record(innocent))
    found = registry.look()
    assert list(found.engines) == ["default"]
    assert len(found.notes) == 2 and all("it is no plain file; remove it" in note for note in found.notes)


def test_what_cannot_be_written_is_one_line(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PrivateFolder() as folder:
        os.close(folder.open_log("a.log"))
        with pytest.raises(YaieError, match=r"a\.log cannot be written: File exists"):
            folder.open_log("a.log")
        (runtime / "b.log").mkdir()
        with pytest.raises(YaieError, match=r"b\.log cannot be removed"):
            folder.remove("b.log")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(YaieError, match=r"c\.json cannot be written: No space left"):
            folder.write_new("c.json", b"{}")
    assert sorted(os.listdir(runtime)) == ["a.log", "b.log"]


def full(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\0b", "a b", "x" * 65, "ä", "a\n", "-x"])
def test_names_that_are_no_file_names(name: str) -> None:
    with pytest.raises(UsageProblem, match="cannot name a detached engine"):
        check_name(name)


def test_one_at_a_time(runtime: Path) -> None:
    """Looking and writing wait for each other."""
    entered = threading.Event()

    def other() -> None:
        with PrivateFolder():
            entered.set()

    with PrivateFolder() as folder:
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.1)
        kept = os.dup(folder._fd)  # as in a process forked just now
    assert entered.wait(10)
    thread.join()
    os.close(kept)


def test_without_a_runtime_folder_it_is_one_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path / "cache"))
    here = folder_path()
    assert here.parent == tmp_path / "cache" and registry.look() == registry.Listing({}, ()) and not here.exists()
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    assert folder_path() != here and folder_path().parent == here.parent


def test_forgetting_leaves_the_successor(runtime: Path, innocent: psutil.Process) -> None:
    write(record(innocent))
    registry.forget(record(innocent, key="the-key-of-another-engine"))
    assert (runtime / "default.json").exists()
    registry.forget(record(innocent))
    assert not os.listdir(runtime)


def test_idle_is_read_from_the_time_of_the_file(runtime: Path, innocent: psutil.Process) -> None:
    write(record(innocent))
    last = time.time() - 100
    os.utime(runtime / "default.json", (last, last))
    assert 100 <= registry.look().engines["default"].idle_s < 200


def test_choosing_names_what_there_is(runtime: Path, innocent: psutil.Process) -> None:
    with pytest.raises(UsageProblem, match="no detached engine runs"):
        registry.choose(registry.look(), None, "yaie stop")
    write(record(innocent))
    assert registry.choose(registry.look(), None, "yaie stop").record.name == "default"
    with pytest.raises(UsageProblem, match="did you mean 'default'"):
        registry.choose(registry.look(), "defalt", "yaie stop")
    write(record(innocent, name="other"))
    with pytest.raises(UsageProblem, match="default, other; name one: yaie stop NAME"):
        registry.choose(registry.look(), None, "yaie stop")
