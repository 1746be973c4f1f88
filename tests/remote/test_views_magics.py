"""The subcommands that look inside, on an engine behind a server: word for word what they say of the engine itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.runs import QUESTIONS, Script, sized
from tests.remote.conftest import KEY
from tests.remote.scripted import ScriptedServer
from yaie_engine import LLM
from yaie_engine.serving import NotOffered
from yaie_magic.remote import RemoteLLM, connect
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer
from yaie_magic.session import session
from yaie_magic.subcommands import dispatch

Say = Callable[[str], str]
LINES = [
    "tree --format text",
    "tree --format text --depth 1",
    "tree --format text --request {ended}",
    "tree --format dot",
    "blocks --format text",
    "blocks --format text --request {ended}",
    "timeline --format text",
    "timeline --format text --steps 9",
    "timeline --format text --request {ended}",
    "insights",
    "insights --json",
    "explain {ended}",
    "explain block 3",
    "explain node 1",
    "history",
    "history 2",
    "config",
    "replay --format text",
    "dashboard --format text",
    "inspect {ended} --choice 2",
    "status",
]


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}, "colors": "nocolor"}))
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def engine() -> Iterator[LLM]:
    """An engine with some past, that rests."""
    with LLM("tiny", num_blocks=64, max_num_batched_tokens=64) as found:
        Script(found)
        found.generate(list(QUESTIONS[:4]), sized(8, n=2), use_tqdm=False)
        found.generate(found.tokenize(QUESTIONS[0]), sized(8, cache_salt="pepper"), use_tqdm=False)
        eventually(lambda: not found.running())
        yield found


@pytest.fixture(scope="module")
def both(engine: LLM) -> Iterator[RemoteLLM]:
    """The engine as `here`, and through its server as `there`."""
    server = BackgroundServer(engine, ServerConfig(port=0, access_log="off", api_key=KEY))
    with connect(server.url, KEY) as remote:
        session.adopt("here", engine.config, engine, "tiny")
        session.adopt("there", remote.config, remote, "tiny")
        yield remote
        for name in ("here", "there"):
            session.engines.pop(name)
        session.current = None
    server.stop()


@pytest.fixture
def say(shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """What a line prints and gives, as text."""
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")

    def run(line: str) -> str:
        capsys.readouterr()
        found = dispatch(shell, line)
        text = "" if found is None else found if isinstance(found, str) else str(getattr(found, "text", found))
        return capsys.readouterr().out + text

    return run


@pytest.mark.parametrize("line", LINES)
def test_it_says_what_it_says_of_the_engine_itself(both: RemoteLLM, engine: LLM, say: Say, line: str) -> None:
    line = line.format(ended=engine.history()[0].request_id)
    here, there = say(f"{line} --engine here"), say(f"{line} --engine there")
    assert plain(there) == plain(here) != ""


def plain(text: str) -> str:
    """Without what differs by the engine's name here."""
    return text.replace("there", "NAME").replace("here", "NAME")


def test_a_saved_run_is_that_of_the_server(both: RemoteLLM, say: Say, tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    assert "Saved" in say(f"replay --engine there --save {path}")
    assert say(f"replay --load {path} --format text") == say("replay --engine there --format text")


def test_trace_and_picture_of_a_server(both: RemoteLLM, say: Say, tmp_path: Path) -> None:
    for name, engine in (("far", "there"), ("near", "here")):
        say(f"timeline --engine {engine} --trace {tmp_path / name}.json")
        say(f"dashboard --engine {engine} --save {tmp_path / name}.svg")
    far, near = (json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"] for name in ("far", "near"))
    assert [timeless(each) for each in far] == [timeless(each) for each in near] and len(near) > 50
    assert (tmp_path / "far.svg").read_text().startswith("<svg")


def timeless(event: dict[str, Any]) -> dict[str, Any]:
    """Times travel in whole microseconds."""
    return {name: value for name, value in event.items() if name not in ("ts", "dur")}


def test_cancel_reaches_the_engine(say: Say, shell: Any, remote: RemoteLLM, llm: LLM) -> None:
    session.adopt("far", remote.config, remote, "tiny")
    try:
        handle = llm.submit("Once upon a time", sized(3000))
        eventually(lambda: remote.running() == [handle.request_id])
        assert say(f"cancel nothing-{handle.request_id} --engine far").endswith("is not running.\n")
        assert say(f"cancel {handle.request_id} --engine far") == "1 request cancelled.\n"
        assert handle.result(30).outputs[0].finish_reason == "cancelled" and remote.running() == []
    finally:
        session.engines.pop("far")
        session.current = None


FOREIGN = (
    "tree",
    "blocks",
    "timeline",
    "dashboard",
    "replay",
    "insights",
    "explain req-1",
    "explain block 1",
    "history",
)


@pytest.mark.parametrize("line", FOREIGN)
def test_a_server_that_is_not_ours_has_no_inside(say: Say, scripted: ScriptedServer, line: str) -> None:
    with connect(scripted.url) as foreign:
        session.adopt("foreign", foreign.config, foreign, "m")
        try:
            with pytest.raises(NotOffered) as refused:
                say(f"{line} --engine foreign")
            assert str(refused.value).startswith(f"{scripted.url} is not a YAIE server: it has no ")
            assert "\n" not in str(refused.value)
        finally:
            session.engines.pop("foreign")
            session.current = None


def test_a_server_that_shows_nothing_says_how_it_would(engine: LLM) -> None:
    config = ServerConfig(host="0.0.0.0", port=0, access_log="off", api_key=KEY)  # noqa: S104
    server = BackgroundServer(engine, config)
    try:
        with connect(server.url, KEY) as remote, pytest.raises(NotOffered, match="--debug-routes"):
            remote.snapshot()
    finally:
        server.stop()


def test_views_of_a_server_that_is_gone_tell_what_it_told(engine: LLM, say: Say) -> None:
    server = BackgroundServer(engine, ServerConfig(port=0, access_log="off", api_key=KEY))
    with connect(server.url, KEY) as remote:
        session.adopt("lost", remote.config, remote, "tiny")
        try:
            before = say("replay --engine lost --format text")
            server.stop()
            after = say("replay --engine lost --format text")
            first, _, rest = after.partition("\n")
            assert first.startswith(f"nothing listens on {server.url}") and "what was told before that" in first
            assert rest == before
        finally:
            session.engines.pop("lost")
            session.current = None
