"""The states of an engine: a table of what each operation does in each, held against every order of three of them.

All are queued behind one action, so that they meet in one look at the inbox: nothing of the loop lies between them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import LONG, Formula, eventually, greedy
from tests.engine.models import VOCAB
from yaie_engine import LLM, EngineDeadError, InvariantError
from yaie_engine.breach import breach
from yaie_engine.engine import LLMEngine
from yaie_engine.fault_points import armed
from yaie_engine.request import Request
from yaie_engine.scheduler import Scheduler
from yaie_engine.sleep import fall_asleep, wake_up

pytestmark = pytest.mark.timeout(120)
OPERATIONS = ("check", "broken", "sleep", "wake", "reset", "submit", "close", "die")
NEXT = {
    "ready": ("ready", "draining", "asleep", "ready", "ready", "ready", "closed", "failed"),
    "asleep": ("asleep", "draining", "asleep", "ready", "asleep", "asleep", "closed", "failed"),
    "draining": ("draining", "failed", "draining", "draining", "draining", "draining", "closed", "failed"),
    "failed": ("failed",) * 8,
    "closed": ("closed",) * 8,
}
ANSWERS: dict[str, tuple[Any, ...]] = {
    "ready": (None, InvariantError, None, None, None, "served", None, SystemExit),
    "asleep": (None, InvariantError, None, None, None, "cancelled", None, SystemExit),
    "draining": (None, InvariantError, EngineDeadError, EngineDeadError, None, "dead", None, SystemExit),
    "failed": (*[EngineDeadError] * 5, "dead", None, EngineDeadError),
    "closed": (*[EngineDeadError] * 5, "dead", None, EngineDeadError),
}


class Life:
    """An engine without a model, and what each of the operations put into its inbox came to."""

    def __init__(self, llm: LLM) -> None:
        like, self.formula, self.llm = llm._engine, Formula(VOCAB), llm
        self.engine = LLMEngine(Scheduler(16, 4), self.formula.runner, like.sampler, like.delivery, like.info)  # type: ignore[arg-type]
        self.hold = threading.Event()
        self.engine._inbox.put(partial(self.hold.wait, LONG))  # type: ignore[arg-type]
        eventually(lambda: self.engine._inbox.qsize() == 0)
        self.requests: list[Request] = []
        self.answers: dict[int, object] = {}
        self.threads: list[threading.Thread] = []

    def operation(self, name: str) -> Callable[[], object]:
        engine = self.engine
        found: dict[str, Callable[[], object]] = {
            "check": partial(engine.call, engine.check),
            "broken": partial(engine.call, self.broken),
            "sleep": partial(engine.call, lambda: fall_asleep(engine, 1, force=True)),
            "wake": partial(engine.call, lambda: wake_up(engine)),
            "reset": partial(engine.call, lambda: engine.scheduler.host.reset(engine.scheduler)),
            "submit": self.submit,
            "close": engine.close,
            "die": partial(engine.call, self.die),
        }
        return found[name]

    def broken(self) -> None:
        self.engine.scheduler.pool._held += 3
        self.engine.check()

    def die(self) -> None:
        raise SystemExit("planted")

    def submit(self) -> Request:
        request = self.llm._intake.request([3, 4, 5, len(self.requests)], greedy(3))
        self.engine.submit(request)
        self.requests.append(request)
        return request

    def queue(self, name: str) -> None:
        before, index = self.engine._inbox.qsize(), len(self.threads)
        thread = threading.Thread(target=self.answer, args=(index, self.operation(name)), daemon=True)
        self.threads.append(thread)
        thread.start()
        eventually(lambda: self.engine._inbox.qsize() > before)

    def answer(self, index: int, operation: Callable[[], object]) -> None:
        found: object
        try:
            found = made if isinstance(made := operation(), Request) else None
        except BaseException as error:
            found = type(error)
        self.answers[index] = found

    def end(self, state: str) -> None:
        """Nobody waits, and the engine is what the table says."""
        self.hold.set()
        lives = state in ("ready", "asleep")
        if not lives:  # first: what ends the engine may ask for more
            self.engine._thread.join(LONG)
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive(), "somebody waits for ever"
        outcomes = [self.outcome(request) for request in self.requests]
        self.answers |= {
            index: outcomes[self.requests.index(found)]
            for index, found in self.answers.items()
            if isinstance(found, Request)
        }
        assert self.engine._thread.is_alive() == lives
        assert self.engine.alive == lives and self.engine.runner.closed != lives  # type: ignore[attr-defined]
        assert (self.engine.state == state) or not lives

    def assert_dead(self) -> None:
        """Whoever asks now hears it at once."""
        for name in OPERATIONS:
            self.answer(-1, self.operation(name))
            assert self.answers[-1] == (None if name == "close" else EngineDeadError)

    def outcome(self, request: Request) -> str:
        eventually(lambda: request.channel.ended)
        output = request.output()
        if output.error is not None:
            return "dead" if isinstance(output.error, EngineDeadError) else repr(output.error)
        wanted = self.formula.greedy(list(output.prompt_token_ids), 3)
        return "served" if list(output.outputs[0].token_ids) == wanted else str(output.outputs[0].finish_reason)


def expected(names: tuple[str, ...]) -> tuple[list[Any], str, bool]:
    """The answers by the table, the state behind the last, and whether the engine has failed by then, or will."""
    state, answers, failed = "ready", list[Any](), False
    for name in names:
        at = OPERATIONS.index(name)
        answers.append(ANSWERS[state][at])
        state = NEXT[state][at]
        failed |= state in ("draining", "failed")
        if state not in ("ready", "draining"):  # what ran ends with it
            ended = "dead" if failed else "cancelled"
            answers = [ended if answer == "served" else answer for answer in answers]
    return answers, state, failed


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    caplog.set_level(logging.CRITICAL, "yaie")


@pytest.mark.parametrize("first", OPERATIONS)
def test_every_operation_does_in_every_state_what_the_table_says(shared_llm: LLM, first: str) -> None:
    for rest in product(OPERATIONS, repeat=2):
        names, life = (first, *rest), Life(shared_llm)
        for name in names:
            life.queue(name)
        answers, state, failed = expected(names)
        life.end(state)
        assert [life.answers[index] for index in range(3)] == answers, names
        if state not in ("ready", "asleep"):
            assert life.engine.state == ("failed" if failed else "closed"), names
            life.assert_dead()
            continue
        assert life.engine.failure is None, names
        assert life.engine.call(partial(wake_up, life.engine)).already == (state == "ready"), names
        assert life.outcome(life.submit()) == "served", names
        life.engine.close()


def test_a_check_behind_the_death_of_the_engine_does_not_revive_it(shared_llm: LLM) -> None:
    """It was queued while the step ran that ended the engine and broke the books."""
    life = Life(shared_llm)

    def dies(plan: object) -> None:
        life.queue("check")
        life.engine.scheduler.pool._held += 3
        raise SystemExit("planted")

    with armed("start", dies):
        life.queue("submit")
        life.end("failed")
    assert life.answers == {0: "dead", 1: EngineDeadError} and life.engine.state == "failed"
    life.assert_dead()


def test_a_breach_of_an_engine_that_has_ended_changes_no_state(shared_llm: LLM) -> None:
    life, found = Life(shared_llm), list[object]()
    for name in ("die", "close"):
        life.queue(name)
    life.engine._inbox.put(lambda: found.append(breach(life.engine, ["planted"])))
    life.end("failed")
    assert life.engine.state == "failed" and [type(one) for one in found] == [EngineDeadError]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_goes_wrong_at_the_end_keeps_nobody_waiting(shared_llm: LLM, kind: type[BaseException]) -> None:
    life = Life(shared_llm)

    def stumble() -> None:
        raise kind("planted")

    life.queue("die")
    life.engine._inbox.put(stumble)
    for name in ("check", "submit"):
        life.queue(name)
    life.end("failed")
    assert life.answers == {0: SystemExit, 1: EngineDeadError, 2: "dead"}
