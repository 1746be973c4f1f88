"""%yaie load --detached, attach, restart and unload in a shell: what a session does, with invented processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fakes
import pytest
from shell_run import Run

from yaie_engine import EngineConfig
from yaie_engine.errors import ModelLoadError, YaieError
from yaie_engine.stages import READING_WEIGHTS
from yaie_magic.detached import attach, attachment, registry
from yaie_magic.detached.record import EngineRecord
from yaie_magic.session import session


class Far(fakes.FakeLLM):
    """An engine of another process, as the session sees it."""

    model = "tiny"


@dataclass
class World:
    """The processes that run, and what was done to them."""

    running: dict[str, EngineRecord] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    launched: list[tuple[str, EngineConfig, float]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def launch(self, name: str, config: EngineConfig, idle: float, report: Any) -> EngineRecord:
        report("reading tokenizer", None)
        self.launched.append((name, config, idle))
        if config.model == "early":
            raise ModelLoadError("no such folder")
        report(READING_WEIGHTS, None)
        self.during()
        if config.model == "late":
            raise ModelLoadError("the file is damaged")
        self.running[name] = EngineRecord(
            name=name,
            model=config.model,
            pid=100_000_000 + len(self.launched),
            started=1.0,
            url="http://127.0.0.1:9",
            key="a-key-of-sixteen-characters",
            idle_timeout=idle,
            config=config.model_dump(mode="json"),
        )
        return self.running[name]

    def end(self, record: EngineRecord) -> bool:
        self.ended.append(record.pid)
        self.running.pop(record.name, None)
        return True

    def find(self, name: str) -> registry.Found | None:
        return registry.Found(self.running[name], 5.0) if name in self.running else None

    def look(self) -> registry.Listing:
        return registry.Listing({name: registry.Found(each, 65.0) for name, each in self.running.items()}, ())


@pytest.fixture
def world(shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    found = World()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(attachment, "launch", found.launch)
    monkeypatch.setattr(attachment, "end", found.end)
    monkeypatch.setattr(registry, "find", found.find)
    monkeypatch.setattr(registry, "look", found.look)
    monkeypatch.setattr(EngineRecord, "runs", property(lambda record: record.pid not in found.ended))
    for module in (attachment, attach):
        monkeypatch.setattr(module, "attach", lambda record, report=None: Far(config=EngineConfig(**record.config)))
    return found


@pytest.fixture
def cells(shell: Any, capsys: pytest.CaptureFixture[str], world: World) -> Run:
    """Cells whose outputs nobody compares: processes and times are shown."""
    return Run(shell, capsys)


def test_what_is_said_from_the_load_to_the_end(cells: Run, world: World) -> None:
    assert "detached in process 100000001" in cells("%yaie load --detached --idle-timeout 60").out
    assert world.launched == [("default", EngineConfig(), 60.0)]
    assert cells("%%generate -m 2\nhi").result.text == "w0 w1 "
    assert "attached already" in cells("%yaie load --detached").out  # any idle time will do
    status = cells("%yaie status").out
    assert "engines\n  default: tiny, detached in process 100000001, since 1970-01-01" in status
    assert status.rstrip().endswith("idle 1.08 min, current")
    assert cells("%yaie unload").out == "tiny ended with its process.\n"
    assert world.ended == [100_000_001] and session.current is None


def test_static_outputs_name_no_process(cells: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    out = cells("%yaie load --detached").out + cells("%yaie status").out
    assert "100000001" not in out and "1970" not in out and "default: tiny, detached, current" in out


def test_the_end_of_the_kernel_is_not_its_end(cells: Run, world: World) -> None:
    cells("%yaie load --detached")
    session.close_all()
    assert not world.ended and not session.engines
    assert "default: tiny, detached in process" in cells("%yaie status").out
    assert "%yaie attach default uses it" in cells("%yaie status").out
    assert "tiny attached" in cells("%yaie attach").out and session.current == "default"


def test_a_load_in_its_place_lets_it_go_on(cells: Run, world: World) -> None:
    cells("%yaie load --detached")
    far = session.get().llm
    out = cells("%yaie load --block-size 8").out
    assert "tiny, detached in process 100000001, goes on" in out
    assert not world.ended and far.state == "closed" and session.get().elsewhere is None
    assert cells("%yaie load --block-size 8").out.endswith("nothing to do.\n")
    assert "100000001" in cells("%yaie attach default").out


def test_the_local_engine_makes_room_when_weights_are_read(cells: Run, world: World) -> None:
    cells("%yaie load")
    here = session.get().llm
    states: list[str] = []
    world.during = lambda: states.append(here.state)
    cells("%yaie load early --detached")
    assert here.state == "ready" and "tiny goes on" in cells.out and session.get().llm is here
    cells("%%chat -m 1\nhello")
    cells("%yaie load --detached")
    assert states == ["closed"] and session.get().elsewhere and "1 chat session ended" in cells.out


def test_one_that_cannot_be_attached_to_is_not_left_behind(
    cells: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(record: EngineRecord, report: Any = None) -> Far:
        raise YaieError("it does not answer")

    monkeypatch.setattr(attachment, "attach", silent)
    cells("%yaie load --detached")
    assert isinstance(cells.error, YaieError) and world.ended == [100_000_001] and not session.engines


def test_a_late_failure_leaves_what_restart_needs(cells: Run, world: World) -> None:
    cells("%yaie load")
    cells("%yaie load late --detached")
    assert isinstance(cells.error, ModelLoadError) and "%yaie restart loads it again" in cells.out
    cells("%yaie restart")
    assert session.get().model == "tiny" and session.get().elsewhere is None


def test_work_that_came_meanwhile_is_kept_and_nothing_is_left_behind(
    cells: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client of the engine that was to be replaced has sent it a request during the load."""
    cells("%yaie load --detached --as far")
    session.adopt("default", EngineConfig(), Far(config=EngineConfig()), "tiny", False, session.get().elsewhere)
    shared = session.get().llm
    monkeypatch.setattr(fakes.SPEED, "step", 0.05)
    world.during = lambda: shared.submit("hi", fakes.SamplingParams(max_tokens=1000)) and None
    assert "1 request is running in engine 'default'" in cells("%yaie load --detached").err
    assert world.ended == [100_000_002] and session.get().llm is shared and shared.state == "ready"
    shared.close()


def test_one_that_has_ended_does_not_go_on(cells: Run, world: World) -> None:
    cells("%yaie load --detached")
    world.end(world.running["default"])
    assert "goes on" not in cells("%yaie load --detached").out and "100000002" in cells.out


def test_restart_is_a_new_process_with_the_old_settings_and_chats(cells: Run, world: World) -> None:
    cells("%yaie load --detached --block-size 8 --idle-timeout 0")
    first = cells("%%chat -m 1\nhello").result
    cells("%yaie restart")
    assert world.ended == [100_000_001] and [idle for _, _, idle in world.launched] == [0.0, 0.0]
    assert world.launched[1][1].block_size == 8 and "100000002" in cells.out and "ended" not in cells.out
    assert cells("%%chat -m 1\nagain").result.prompt[: len(first.prompt)] == list(first.prompt)


def test_a_restart_that_fails_can_be_repeated(cells: Run, world: World) -> None:
    cells("%yaie load --detached")

    def unlucky() -> None:
        raise ModelLoadError("no memory")

    world.during = unlucky
    cells("%yaie restart")
    assert isinstance(cells.error, ModelLoadError) and "goes on" not in cells.out
    assert "%yaie restart" in cells("%yaie status").out
    world.during = lambda: None
    cells("%yaie restart")
    assert cells("%%generate -m 2\nhi").result.text == "w0 w1 "


def test_other_settings_are_refused_or_forced(cells: Run, world: World) -> None:
    cells("%yaie load --detached")
    assert "other settings (tiny)" in cells("%yaie load --detached --block-size 8").err
    assert "other settings" in cells("%yaie load --detached --idle-timeout 9").err
    assert not world.ended and len(world.launched) == 1
    out = cells("%yaie load --detached --block-size 8 --force").out
    assert world.ended == [100_000_001] and "goes on" not in out
    assert session.get().config.block_size == 8


def test_running_work_is_refused_before_anything_happens(
    cells: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells("%yaie load --detached --as other")
    cells("%yaie load --as far --detached")
    session.close_all()
    cells("%yaie load --as far")
    monkeypatch.setattr(fakes.SPEED, "step", 0.05)
    handle = session.get().llm.submit("hi", fakes.SamplingParams(max_tokens=1000))
    assert "1 request is running in engine 'far'" in cells("%yaie attach far").err
    assert session.get().llm.state == "ready" and not world.ended
    assert "1 running request cancelled" in cells("%yaie attach far --force").out
    assert handle.result(10).outputs[0].finish_reason == "cancelled"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("load --idle-timeout 5", "--idle-timeout is for --detached"),
        ("load --detached --idle-timeout soon", "--idle-timeout soon: seconds from 0 (never)"),
        ("load --detached --idle-timeout nan", "--idle-timeout nan"),
        ("load --detached --idle-timeout 1e9", "to 100,000,000"),
        ("load --detached --as ../x", "cannot name a detached engine"),
        ("load --detatched", "did you mean '--detached'?"),
        ("attach", "no detached engine runs"),
        ("attach a b", "unexpected word 'b'"),
    ],
)
def test_refused_before_a_process_is_started(cells: Run, world: World, line: str, reason: str) -> None:
    assert reason in cells(f"%yaie {line}").err
    assert not world.launched


def test_a_relative_path_is_meant_from_here(cells: Run, world: World, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine.jinja").write_text("{{ messages }}")
    before = os.getcwd()
    try:
        os.chdir(tmp_path)
        cells("%yaie load ./mine --detached --tokenizer mine --chat-template mine.jinja")
    finally:
        os.chdir(before)
    config = world.launched[0][1]
    assert config.model == config.tokenizer == str((tmp_path / "mine").resolve())
    assert config.chat_template == str((tmp_path / "mine.jinja").resolve())
    assert attachment.resolved(config.replace(chat_template="x" * 5000)).chat_template == "x" * 5000
