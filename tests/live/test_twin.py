"""Static twins are drawn again when the engine rests, and stay when they cannot be."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.engine.fakes import eventually
from yaie_engine import LLM
from yaie_widgets import draw_dashboard
from yaie_widgets.live.source import source_of
from yaie_widgets.live.twin import TwinKeeper


def test_a_twin_is_drawn_again_after_work_and_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_widgets.live.twin.REST_S", 0.2)
    shown: list[Any] = []
    keeper = TwinKeeper(3, lambda: {"text/plain": f"drawing {len(shown)}"}, shown.append)
    for step in range(3, 8):
        keeper.look(step, idle=step == 3)
        time.sleep(0.1)
    assert shown == []  # nothing new, then work
    for _ in range(20):
        keeper.look(7, idle=True)
        time.sleep(0.05)
    assert shown == [{"text/plain": "drawing 0"}]


def test_a_twin_is_drawn_again_when_its_engine_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was unloaded in the middle of its work: no step follows, and what it says is `ready`."""
    monkeypatch.setattr("yaie_widgets.live.twin.REST_S", 0.0)
    llm = LLM("tiny", num_blocks=64)
    source = source_of(llm)
    shown: list[Any] = []
    keeper = TwinKeeper(source.step, lambda: draw_dashboard(source.recording())._repr_mimebundle_(), shown.append)
    keeper.look(source.step, source.idle, source.alive)
    assert shown == [] and "ready" in draw_dashboard(source.recording()).text
    llm.close()
    source.pull()
    keeper.look(source.step, False, source.alive)
    eventually(lambda: len(shown) == 1)
    eventually(lambda: not keeper._drawing)
    keeper.look(source.step, True, source.alive)
    assert len(shown) == 1 and "ready" not in shown[0]["text/plain"]


def test_a_twin_that_cannot_be_drawn_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yaie_widgets.live.twin.REST_S", 0.0)
    keeper = TwinKeeper(0, lambda: dict[str, dict[str, str]]()["text/plain"], lambda bundle: None)
    keeper.look(1, idle=True)
    eventually(lambda: "could not be renewed" in caplog.text)
    eventually(lambda: not keeper._drawing)
    keeper.look(1, idle=True)
    assert not keeper._drawing
