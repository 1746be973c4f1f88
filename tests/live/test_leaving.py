"""What ends a view: pages that leave it, and another run of its cell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.comms import FakeComm
from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM
from yaie_widgets import EngineDashboard, RadixTreeExplorer, Replay
from yaie_widgets.live import show as showing
from yaie_widgets.live import view as viewing
from yaie_widgets.live.publisher import publisher
from yaie_widgets.live.source import source_of
from yaie_widgets.live.step_view import StepView


@pytest.fixture(scope="module")
def engine() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=64) as found:
        Script(found)
        yield found


@pytest.fixture
def llm(engine: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    monkeypatch.setattr("comm.create_comm", FakeComm)
    monkeypatch.setattr(viewing, "LINGER_S", 0.3)
    monkeypatch.setattr("yaie_widgets.live.twin.REST_S", 0.1)
    yield engine
    for view in list(publisher._views):
        view.close()  # type: ignore[attr-defined]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a cell that shows views."""
    shell = SimpleNamespace(parent={})
    shell.get_parent = lambda: shell.parent
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: SimpleNamespace(update=lambda *_, **__: None))
    runs = iter(range(1000))

    def run(name: str, *views: StepView, draw: Any = None) -> None:
        shell.parent = {"metadata": {"cellId": name} if name else {}, "header": {"msg_id": str(next(runs))}}
        for view in views:
            showing.show(view, {"text/plain": "first"}, draw)

    return run


def served(*views: StepView) -> list[bool]:
    return [any(each is view for each in publisher._views) for view in views]


def test_a_view_that_all_pages_left_is_served_no_more_until_one_returns(llm: LLM) -> None:
    view = Replay(source_of(llm))
    comm: FakeComm = view.comm
    for page in ("one", "two"):
        comm.say(kind="ready", seq=0, page=page)
    comm.say(kind="gone", page="one")
    time.sleep(0.6)
    assert served(view) == [True] and view.visible
    comm.say(kind="gone", page="two")
    assert served(view) == [True] and not view.visible
    eventually(lambda: served(view) == [False])
    llm.generate(QUESTIONS[0], sized(5), use_tqdm=False)
    sent = len(comm.messages())
    time.sleep(0.5)
    assert len(comm.messages()) == sent
    comm.say(kind="ready", seq=-1, page="three")
    assert served(view) == [True]
    eventually(lambda: comm.kinds()[-1:] == ["recording"])
    last = [step["step"] for step in comm.messages()[-1]["recording"]["steps"]][-1]
    assert last == llm.step


def test_a_page_that_is_loaded_again_finds_its_view_served(llm: LLM) -> None:
    view = Replay(source_of(llm))
    view.comm.say(kind="ready", seq=0, page="before")
    view.comm.say(kind="gone", page="before")
    view.comm.say(kind="visible", visible=True, page="after")
    time.sleep(0.6)
    assert served(view) == [True] and view.visible


def test_another_run_of_a_cell_closes_what_it_showed(llm: LLM, cell: Any) -> None:
    source = source_of(llm)
    views = [Replay(source) for _ in range(5)]
    cell("a", views[0], views[1])  # two of one run stand side by side
    cell("b", views[2])
    assert served(*views[:3]) == [True, True, True]
    cell("a", views[3])
    cell("", views[4])  # a front end that names no cells
    assert served(*views) == [False, False, True, True, True]
    assert views[0].comm is None and views[2].comm is not None


def test_a_dozen_runs_of_a_cell_leave_one_view_and_one_twin(llm: LLM, cell: Any) -> None:
    drawn: list[int] = []
    source = source_of(llm)
    for _ in range(12):
        cell("a", EngineDashboard(source), draw=lambda: drawn.append(1) or {"text/plain": "again"})
    assert len([each for each in publisher._views if isinstance(each, EngineDashboard)]) == 1
    llm.generate(QUESTIONS[0], sized(5), use_tqdm=False)
    eventually(lambda: bool(drawn))
    time.sleep(0.5)
    assert len(drawn) == 1


def test_of_equal_views_the_newest_has_its_twin_drawn_again(llm: LLM, cell: Any) -> None:
    drawn: list[str] = []
    source = source_of(llm)

    def draw(name: str) -> Callable[[], dict[str, str]]:
        return lambda: drawn.append(name) or {"text/plain": name}  # type: ignore[func-returns-value]

    cell("a", RadixTreeExplorer(source), draw=draw("old"))
    cell("b", RadixTreeExplorer(source, depth=2), draw=draw("other"))
    cell("c", RadixTreeExplorer(source), draw=draw("new"))
    llm.generate(QUESTIONS[0], sized(5), use_tqdm=False)
    eventually(lambda: len(drawn) == 2)
    time.sleep(0.5)
    assert sorted(drawn) == ["new", "other"]


def test_a_closed_view_is_finalised_under_any_lock(llm: LLM) -> None:
    view = Replay(source_of(llm))
    view.close()
    with publisher._changed:  # as when garbage is collected while another thread has the lock
        ended = threading.Thread(target=view.__del__, daemon=True)
        ended.start()
        ended.join(5)
        assert not ended.is_alive()


def test_the_thread_of_the_publisher_starts_without_its_lock(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    eventually(lambda: publisher._thread is None)
    free: list[bool] = []
    start = threading.Thread.start

    def look() -> None:
        if publisher._changed.acquire(timeout=1):
            publisher._changed.release()
            free.append(True)

    def looked_at(thread: threading.Thread) -> None:
        if thread.name == "yaie-publisher":
            other = threading.Thread(target=look)
            start(other)
            other.join()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", looked_at)
    Replay(source_of(llm))
    assert free == [True]
