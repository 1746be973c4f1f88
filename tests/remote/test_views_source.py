"""Live views of an engine behind a server: what they show, also when the server is slow, gone or another."""

from __future__ import annotations

import gc
import json
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.engine.fakes import eventually
from tests.live.comms import FakeComm, opened_views, unpacked
from tests.live.runs import QUESTIONS, Script, sized
from tests.remote.conftest import KEY
from yaie_engine import LLM
from yaie_engine.errors import YaieError
from yaie_magic.remote import RemoteLLM, connect
from yaie_magic.remote.source import RemoteSource
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer
from yaie_widgets import EngineDashboard, KVBlockMap, RadixTreeExplorer, Replay, SchedulerTimeline
from yaie_widgets.live.source import engine_source, source_of

VIEWS = (EngineDashboard, KVBlockMap, RadixTreeExplorer, Replay, SchedulerTimeline)


opened = pytest.fixture(opened_views)


@pytest.fixture(scope="module")
def engine() -> Iterator[LLM]:
    """An engine of this file's own; its model is a script."""
    with LLM("tiny", num_blocks=64, max_num_batched_tokens=64) as found:
        Script(found, 0.002)
        found.generate(QUESTIONS[0], sized(2), use_tqdm=False)  # a run that has begun
        yield found


@pytest.fixture
def serve() -> Iterator[Callable[..., BackgroundServer]]:
    """Servers over an engine, by default on a port of their own."""
    made: list[BackgroundServer] = []

    def start(llm: LLM, port: int = 0) -> BackgroundServer:
        made.append(BackgroundServer(llm, ServerConfig(port=port, access_log="off", api_key=KEY)))
        return made[-1]

    yield start
    for server in made:
        server.stop()


def port_of(server: BackgroundServer) -> int:
    return urlsplit(server.url).port or 0


def newest(run: dict[str, Any]) -> int:
    """The number of its newest step."""
    return int(run["steps"][-1]["step"] if run["steps"] else run["base"]["step"])


def page_of(comm: FakeComm) -> dict[str, Any]:
    """The run as a page has it that took in everything."""
    run = unpacked(comm.opened["snapshot"])["recording"]
    for message in comm.each():
        if message["kind"] == "recording":
            run = message["recording"]
        elif message["kind"] == "steps":
            delta = message["delta"]
            known = {step["step"] for step in run["steps"]}
            steps = run["steps"] + [step for step in delta.get("steps", ()) if step["step"] not in known]
            requests = {
                label: run["requests"].get(label, {}) | facts for label, facts in delta.get("requests", {}).items()
            }
            run = {
                **run,
                "steps": steps,
                "requests": run["requests"] | requests,
                "vocab": run["vocab"] | delta.get("vocab", {}),
                "engine": run["engine"] | delta.get("engine", {}),
            }
    return {**run, "engine": {name: value for name, value in run["engine"].items() if name != "memory"}}


def state(comm: FakeComm) -> str:
    return str(page_of(comm)["engine"]["state"])


def test_views_over_http_tell_their_pages_what_local_ones_do(
    opened: Any, engine: LLM, serve: Callable[..., BackgroundServer]
) -> None:
    with connect(serve(engine).url, KEY) as remote:
        comms = [opened(kind(source_of(remote))) for kind in VIEWS]
        for comm in comms:
            comm.say(kind="ready", seq=0, page="p")
        for question in QUESTIONS[:2]:
            engine.generate([question, QUESTIONS[4]], sized(30), use_tqdm=False)
        eventually(lambda: not engine.running())
        local = json.loads(json.dumps(engine_source(engine).recording()))
        for comm in comms:
            eventually(lambda comm=comm: page_of(comm) == local, 30)
            assert comm.each() and newest(page_of(comm)) == engine.step
        told = unpacked(comms[0].opened["snapshot"])["recording"]["engine"]
        assert told["memory"] > 2**20  # that of the server's process
        assert all(
            "memory" not in each["delta"]["engine"] for comm in comms[1:] for each in comm.each() if "delta" in each
        )


def test_views_go_on_when_the_server_comes_back(
    opened: Any, engine: LLM, serve: Callable[..., BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie_magic.remote.source.RETRY_S", 0.1)
    server = serve(engine)
    with connect(server.url, KEY) as remote:
        source = source_of(remote)
        far, near = opened(Replay(source)), opened(Replay(engine_source(engine)))
        for comm in (far, near):
            comm.say(kind="ready", seq=0, page="p")
        server.stop()
        eventually(lambda: state(far) == "unreachable", 30)
        steps = page_of(far)["steps"]
        assert steps and not source.alive and "nothing listens" in str(source.trouble)
        engine.generate(QUESTIONS[4], sized(9), use_tqdm=False)
        eventually(lambda: newest(page_of(near)) == engine.step, 30)  # other views go on
        assert page_of(far)["steps"] == steps and source.recording()["steps"] == steps
        with pytest.raises(YaieError, match="nothing listens"):
            remote.tape()
        assert source_of(remote) is source  # the run stays readable
        serve(engine, port_of(server))
        eventually(lambda: page_of(far) == page_of(near), 30)
        assert state(far) == "ready" and source.trouble is None and source.alive


def test_a_server_with_another_engine_is_another_run(
    opened: Any, engine: LLM, serve: Callable[..., BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie_magic.remote.source.RETRY_S", 0.1)
    server = serve(engine)
    with connect(server.url, KEY) as remote, LLM("tiny", num_blocks=32) as other:
        before = source_of(remote)
        comm = opened(Replay(before))
        comm.say(kind="ready", seq=0, page="p")
        known = before.recording()
        server.stop()
        serve(other, port_of(server))
        eventually(lambda: state(comm) == "restarted", 30)
        assert before.recording()["steps"] == known["steps"]  # the old run is what it was
        after = source_of(remote)
        assert after is not before and after.recording()["engine"]["num_blocks"] == 32
        assert source_of(remote) is after and remote.tape().steps == ()
        before.turn()
        assert before.recording()["engine"]["state"] == "restarted"


class Mute:
    """A server that takes questions and says nothing, or a byte now and then, once `quiet` is set; before that it hands
    them on to another."""

    def __init__(self, behind: str, trickle: bytes = b"") -> None:
        self.quiet, self.trickle = threading.Event(), trickle
        self.over, self.asked = threading.Event(), threading.Event()
        self._behind = urlsplit(behind)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        place = (self._behind.hostname or "", self._behind.port or 0)
        with connection, socket.create_connection(place) as behind:
            behind.settimeout(0.05)
            try:
                while data := connection.recv(65536):
                    if self.quiet.is_set():
                        self.asked.set()
                        while self.trickle and not self.over.wait(0.05):
                            connection.sendall(self.trickle)
                        self.over.wait(60)
                        return
                    behind.sendall(data)
                    self._answer(behind, connection)
            except OSError:  # the client has left
                return

    def _answer(self, behind: socket.socket, connection: socket.socket) -> None:
        while True:
            try:
                connection.sendall(behind.recv(65536))
            except TimeoutError:
                return

    def close(self) -> None:
        self.over.set()
        self._socket.close()


@pytest.mark.parametrize("trickle", [b"", b"x", b"HTTP/1.1 200 OK\r\nx: y\r\n"], ids=["nothing", "noise", "headers"])
def test_a_mute_server_holds_up_no_view(
    opened: Any,
    engine: LLM,
    serve: Callable[..., BackgroundServer],
    monkeypatch: pytest.MonkeyPatch,
    trickle: bytes,
) -> None:
    for name, value in (("PATIENCE_S", 0.3), ("GRACE_S", 0.3), ("RETRY_S", 0.1)):
        monkeypatch.setattr(f"yaie_magic.remote.source.{name}", value)
    mute = Mute(serve(engine).url, trickle)
    try:
        with connect(mute.url, KEY) as remote:
            source = source_of(remote)
            far, near = opened(Replay(source)), opened(Replay(engine_source(engine)))
            for comm in (far, near):
                comm.say(kind="ready", seq=0, page="p")
            eventually(lambda: source._thread is not None)
            mute.quiet.set()
            assert mute.asked.wait(30)
            engine.generate(QUESTIONS[4], sized(9), use_tqdm=False)
            eventually(lambda: newest(page_of(near)) == engine.step, 30)
            eventually(lambda: state(far) == "unreachable", 30)
            revision = source.turn()  # at once, though a question is open
            assert source.pull() >= revision  # after its own patience
    finally:
        mute.close()


def test_what_a_hostile_server_says_is_a_state_of_its_views(engine: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoilt:
        """Answers whole questions rightly, then as a test says."""

        url, timeout = "http://spoilt", 1.0
        then: Any = None

        def get_json(self, path: str, *, timeout: float | None = None, **query: Any) -> Any:
            if self.then is not None:
                return self.then(query)
            return json.loads(json.dumps(engine_source(engine).news("", -1)))

    client = Spoilt()
    source = RemoteSource(client)  # type: ignore[arg-type]
    known = source.recording()["steps"]
    for said in (
        {},
        [],
        {"run": known},
        {"run": source._mirror.run, "revision": 5, "memory": 1, "delta": {"steps": 1}},
    ):
        client.then = lambda query, said=said: said
        source.pull()
        assert source.recording()["engine"]["state"] == "unreadable" and source.recording()["steps"] == known
        assert not source._mirror.follows
        client.then = None
        source.pull()
        assert source.alive and source.trouble is None and source.recording()["steps"] == known

    def broken(query: Any) -> Any:
        raise ValueError("never to be seen outside")

    client.then = broken
    source.turn()
    eventually(lambda: source.recording()["engine"]["state"] == "unreadable", 30)


def test_the_key_is_in_no_view_and_no_word(opened: Any, remote: RemoteLLM, capsys: pytest.CaptureFixture[str]) -> None:
    remote.generate("Hello there", sized(2), use_tqdm=False)
    source = source_of(remote)
    for kind in VIEWS:
        view = kind(source)
        opened(view)
        told = json.dumps(view.get_state(), default=str) + repr(view) + repr(source)
        assert KEY not in told and "Bearer" not in told
    assert KEY not in json.dumps(source.recording()) + repr(remote.snapshot()) + repr(vars(source))


def test_a_view_of_a_connection_that_was_dropped_says_so(opened: Any, engine: LLM, serve: Any) -> None:
    with connect(serve(engine).url, KEY) as remote:
        source = source_of(remote)
        comm = opened(Replay(source))
        comm.say(kind="ready", seq=0, page="p")
        eventually(lambda: source._thread is not None)
    eventually(lambda: state(comm) == "disconnected", 30)
    eventually(lambda: source._thread is None)
    source.pull()
    assert source.recording()["engine"]["state"] == "disconnected" and source.recording()["steps"]


def test_nobody_who_looks_leaves_nothing_that_asks(engine: LLM, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_magic.remote.source.LINGER_S", 0.2)
    with connect(serve(engine).url, KEY) as remote:
        thread = asking(source_of(remote))
        eventually(lambda: not thread.is_alive())
        thread, gone = asking(source_of(remote)), weakref.ref(source_of(remote))
    del remote
    eventually(lambda: (gc.collect(), gone() is None)[1])
    eventually(lambda: not thread.is_alive())


def asking(source: Any) -> threading.Thread:
    """The thread that asks for a source, once a view wants to know."""
    eventually(lambda: source._thread is None)
    source.turn()
    thread = source._thread
    assert thread is not None and thread.daemon
    return thread  # type: ignore[no-any-return]
