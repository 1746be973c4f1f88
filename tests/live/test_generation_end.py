"""How long the live view of a generation stays: until every page that may show its end has it in the notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.comms import FakeComm
from tests.live.generations import ended, progress, row_of
from yaie_widgets import LiveGeneration
from yaie_widgets.live.generation_row import Row

FORM = {"text/plain": "the whole text"}


class Told:
    """A feed that ends when it is told to."""

    def __init__(self) -> None:
        self.over = False

    def look(self, stopping: bool) -> Row:
        return ended("req-7", "Why", "Because") if self.over else row_of("req-7", progress("decode", "Why", output=2))

    def read(self, seen: int) -> tuple[str, int]:
        return ("", seen) if seen else ("Because", 1)

    def stop(self) -> None:
        self.over = True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A view of one request on a page `first` that has said so."""
    monkeypatch.setattr("comm.create_comm", FakeComm)
    view = LiveGeneration([Told()])
    comm: Any = view.comm
    comm.say(kind="ready", seq=0, page="first")
    yield view, comm
    view.close()


def forms(comm: FakeComm) -> list[Any]:
    found = [message["final"] for message in comm.messages() if message["kind"] == "whole"]
    return [form for form in found if form is not None]


def closed(comm: FakeComm) -> Callable[[], bool]:
    return lambda: comm.closed


def test_on_the_page_that_began_it_the_view_closes_with_the_end(shown: Any) -> None:
    view, comm = shown
    view.end(FORM)
    assert comm.closed and not forms(comm)


@pytest.mark.parametrize("out_of_sight", [False, True])
def test_a_page_that_was_loaded_again_gets_the_form_and_keeps_it(shown: Any, out_of_sight: bool) -> None:
    view, comm = shown
    comm.say(kind="gone", page="first")
    comm.say(kind="ready", seq=0, page="second")
    if out_of_sight:
        comm.say(kind="visible", visible=False, page="second")
    view.end(FORM)
    eventually(lambda: forms(comm) == [FORM])
    assert not comm.closed
    comm.say(kind="kept", page="second")
    eventually(closed(comm))


def test_a_page_that_was_away_at_the_end_gets_the_form_when_it_is_back(shown: Any) -> None:
    view, comm = shown
    comm.say(kind="gone", page="first")
    view.end(FORM)
    assert not comm.closed and view.get_state("snapshot")["snapshot"]["final"] == FORM
    before = len(comm.messages())
    comm.say(kind="ready", seq=0, page="second")
    eventually(lambda: len(comm.messages()) > before and comm.messages()[-1]["final"] == FORM)
    comm.say(kind="kept", page="second")
    eventually(closed(comm))


def test_with_two_pages_open_the_view_stays_until_both_have_it(shown: Any) -> None:
    view, comm = shown
    comm.say(kind="ready", seq=0, page="second")
    view.end(FORM)
    comm.say(kind="kept", page="second")
    assert not comm.closed
    comm.say(kind="kept", page="first")
    assert comm.closed


def test_a_view_without_pages_sends_nothing_and_catches_up(shown: Any) -> None:
    view, comm = shown
    comm.say(kind="gone", page="first")
    assert not view.visible
    comm.say(kind="ready", seq=0, page="second")
    assert view.visible
    eventually(lambda: [message["kind"] for message in comm.messages()][-1:] == ["whole"])
