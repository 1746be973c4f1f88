"""Waiting for a detached engine that another kernel has started: what ends the wait, and what is said then."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from yaie_engine.errors import YaieError
from yaie_magic.detached import attach as attaching
from yaie_magic.detached.attach import attach
from yaie_magic.detached.record import EngineRecord
from yaie_magic.interrupt import Interrupted

RECORD = EngineRecord(
    name="one",
    model="tiny",
    pid=os.getpid(),
    started=1.0,
    url="http://127.0.0.1:9",
    key="a-key-of-sixteen-characters",
    idle_timeout=0,
    config={},
)
LOADING = {"status": "loading", "stage": "reading weights"}
Answers = Iterator[dict[str, Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "LOOK_S", 0.001)
    monkeypatch.setattr(attaching, "SILENT_S", 0.02)
    monkeypatch.setattr(EngineRecord, "runs", True)


def answers(monkeypatch: pytest.MonkeyPatch, *given: dict[str, Any]) -> None:
    """What it says about itself, the last one again and again."""
    left = list(given)
    monkeypatch.setattr(attaching, "health", lambda record: left.pop(0) if len(left) > 1 else left[0])


def test_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, LOADING, {"status": "failed"})
    with pytest.raises(YaieError, match=r"one failed; its log is .*one\.log"):
        attach(RECORD)


def test_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {}, LOADING, {})
    with pytest.raises(YaieError, match="does not answer; yaie stop one ends it"):
        attach(RECORD)


def test_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, LOADING, {})
    monkeypatch.setattr(EngineRecord, "runs", False)
    with pytest.raises(YaieError, match="one has ended"):
        attach(RECORD)


def test_an_interrupt_ends_the_wait_and_not_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, LOADING)
    seen: list[str] = []

    def pressed(what: str, share: float | None) -> None:
        seen.append(what)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="attach interrupted; one goes on without this kernel"):
        attach(RECORD, pressed)
    assert seen == ["reading weights"]
