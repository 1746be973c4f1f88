"""`yaie stop` before and without engines: what is refused, what is said. Ending real ones: tests/remote."""

from __future__ import annotations

from pathlib import Path

import pytest

from yaie_magic import cli
from yaie_magic.detached import launch, registry
from yaie_magic.detached.record import EngineRecord

RECORD = {
    "model": "tiny",
    "pid": 4242,
    "started": 1000.0,
    "url": "http://127.0.0.1:9",
    "key": "a-key-that-nobody-must-see",
    "idle_timeout": 0,
    "config": {},
}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EngineRecord]:
    """Two engines that are said to run; the list is of those that were ended."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ended: list[EngineRecord] = []
    found = {name: registry.Found(EngineRecord(name=name, **RECORD), 90.0) for name in ("one", "two")}  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "look", lambda: registry.Listing(found, ("the engine three is gone",)))
    monkeypatch.setattr(launch, "end", lambda record: ended.append(record) or record.name != "two")
    return ended


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--json"], "--json is for --list"),
        (["one", "--all"], "either a name or --all"),
        (["one", "--list"], "either a name or --list"),
        (["--all", "--list"], "either --all or --list"),
        (["onee"], "did you mean 'one'?"),
        ([], "several detached engines run: one, two; name one: yaie stop NAME"),
        (["one", "two"], "unexpected word 'two'"),
    ],
)
def test_refused(
    running: list[EngineRecord], words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["stop", *words]) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert not running


def test_one_is_ended(running: list[EngineRecord], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", "one"]) == 0
    said = capsys.readouterr()
    assert said.out == "tiny (one, process 4242) has ended.\n" and "three is gone" in said.err
    assert [record.name for record in running] == ["one"]


def test_all_are_ended_and_one_that_had_to_be_killed_is_a_failure(
    running: list[EngineRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["stop", "--all"]) == 1
    said = capsys.readouterr()
    assert "one, process 4242) has ended" in said.out and "two, process 4242) did not end by itself" in said.err
    assert [record.name for record in running] == ["one", "two"]


def test_listed_without_an_answer(running: list[EngineRecord], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", "--list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and "no answer" in rows[1] and "1.5 min" in rows[1] and rows[1].endswith("never")
    assert not running


def test_none_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for words in (["--all"], ["--list"]):
        assert cli.main(["stop", *words]) == 0
        assert capsys.readouterr().out == "No detached engine runs.\n"
    assert cli.main(["stop"]) == 2
    assert not (tmp_path / "yaie").exists()  # looking makes no folder
