"""Sleep and wake beside submits, closes, interrupts and exchanges of kernels: nobody waits for ever."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB
from tests.engine.standin import NoLauncher, standin, standin_kernels
from tests.engine.test_kernel_exchange import other
from yaie_cuda import sources
from yaie_engine import LLM, AsleepError, BusyError, EngineDeadError, Generation
from yaie_engine.kernel_exchange import exchange
from yaie_engine.kernel_gate import GATE

pytestmark = pytest.mark.timeout(120)
PROMPT = list(range(3, 30))


def started(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_many_threads_submit_while_others_put_it_to_sleep_and_wake_it(llm: LLM, overlap: None) -> None:
    """What was accepted ends: whole, or cancelled by force; never as an error, and never not at all."""
    formula = Formula(VOCAB)
    swap_runner(llm, formula.runner)
    over = threading.Event()
    outputs: list[Any] = []
    counts = dict.fromkeys(("asleep", "busy", "slept"), 0)

    def submit(first: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                outputs.append(llm.submit([first, number % 7, 5], greedy(12, ignore_eos=True)).result(LONG))
            except AsleepError:
                counts["asleep"] += 1

    def sleep(force: bool) -> None:
        for _ in range(25):
            try:
                counts["slept"] += not llm.sleep(force=force).already
            except BusyError:
                counts["busy"] += 1
            llm.check()
            llm.wake_up()

    threads = started(lambda: submit(1), lambda: submit(2), lambda: submit(3))
    joined(started(lambda: sleep(True), lambda: sleep(False)))
    over.set()
    joined(threads)
    llm.wake_up()
    assert counts["slept"] > 10 and llm.state == "ready"
    for output in outputs:
        found, wanted = tokens(output), formula.greedy(list(output.prompt_token_ids), 12)
        assert output.error is None and found == wanted[: len(found)]
        assert output.outputs[0].finish_reason in ("length", "cancelled")
    assert {output.outputs[0].finish_reason for output in outputs} >= {"length"}


@pytest.fixture
def slow_to_wake(make_llm: Make) -> Iterator[tuple[LLM, threading.Event, threading.Event]]:
    """A sleeping engine that stays at waking (the first event) until it may go on (the second)."""
    llm = make_llm()
    ask(llm, PROMPT)
    llm.sleep()
    there, goes_on = threading.Event(), threading.Event()
    wake = llm._engine.runner.wake

    def slowly() -> Any:
        there.set()
        assert goes_on.wait(LONG)
        return wake()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm._engine.runner, "wake", slowly)
        yield llm, there, goes_on
        goes_on.set()


def test_an_interrupt_ends_the_wait_and_not_the_waking(
    slow_to_wake: tuple[LLM, threading.Event, threading.Event],
) -> None:
    llm, there, goes_on = slow_to_wake

    def interrupt() -> None:
        assert there.wait(LONG)
        os.kill(os.getpid(), signal.SIGINT)

    threads = started(interrupt)
    with pytest.raises(KeyboardInterrupt):
        llm.wake_up()
    joined(threads)
    assert llm.state == "asleep"
    with pytest.raises(AsleepError):
        llm.submit(PROMPT)
    goes_on.set()
    eventually(lambda: llm.state == "ready")
    assert ask(llm, PROMPT).error is None and llm.wake_up().already


def test_figures_are_there_while_it_wakes_and_a_close_waits_for_the_end(
    slow_to_wake: tuple[LLM, threading.Event, threading.Event],
) -> None:
    llm, there, goes_on = slow_to_wake
    waking = started(llm.wake_up)
    assert there.wait(LONG)
    now = llm.steps_since(-1)
    assert now.state == "asleep" and now.records and llm.history()
    closing = started(llm.close)
    goes_on.set()
    joined([*waking, *closing])
    assert llm.state == "closed"
    with pytest.raises(EngineDeadError):
        llm.wake_up()


def test_a_sleep_behind_a_close_does_not_hang(llm: LLM, make_llm: Make) -> None:
    mine = make_llm()
    hold = threading.Event()
    mine._engine._inbox.put(lambda: hold.wait(LONG) and None)
    errors: list[BaseException] = []

    def sleep(wake: bool) -> None:
        try:
            mine.wake_up() if wake else mine.sleep()
        except EngineDeadError as error:
            errors.append(error)

    closing = started(mine.close)
    eventually(lambda: mine._engine._inbox.qsize() == 1)
    sleeping = started(lambda: sleep(False), lambda: sleep(True))
    eventually(lambda: mine._engine._inbox.qsize() == 3)
    hold.set()
    joined([*closing, *sleeping])
    assert mine.state == "closed" and len(errors) == 2


@pytest.mark.parametrize("force", [False, True])
def test_a_request_that_comes_in_behind_a_sleep_is_not_lost(llm: LLM, force: bool) -> None:
    """It was accepted before the engine's thread came to the sleep: it counts as running, or is cancelled with them."""
    swap_runner(llm, Formula(VOCAB).runner)
    inbox, hold = llm._engine._inbox, threading.Event()
    inbox.put(lambda: hold.wait(LONG) and None)
    eventually(lambda: inbox.qsize() == 0)
    results: list[Any] = []

    def sleep() -> None:
        try:
            results.append(llm.sleep(force=force).num_cancelled)
        except BusyError as error:
            results.append(-error.count)

    sleeping = started(sleep)
    eventually(lambda: inbox.qsize() == 1)
    handle = llm.submit(PROMPT, greedy(8, ignore_eos=True))
    hold.set()
    joined(sleeping)
    output = handle.result(LONG)
    assert output.error is None and results == [1 if force else -1]
    assert output.outputs[0].finish_reason == ("cancelled" if force else "length")
    assert llm.is_sleeping == force
    llm.check()
    assert llm.wake_up().already != force


def test_kernels_are_exchanged_while_it_sleeps(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a sleeper; woken, it runs the new kernels."""
    monkeypatch.setattr(NoLauncher, "loaded", (), raising=False)
    with standin(standin_kernels()):
        llm, awake = (make_llm(attention_backend="emulated", num_blocks=64) for _ in range(2))
        right = tokens(ask(llm, PROMPT))
        llm.sleep()
        try:
            with pytest.MonkeyPatch.context() as patch:
                exchange(lambda: other(patch))
                llm.wake_up()
                wrong = tokens(ask(llm, PROMPT))
                assert wrong == tokens(ask(awake, PROMPT)) != right
                llm.sleep()
        finally:
            sources.restore()
        llm.wake_up()
        assert tokens(ask(llm, PROMPT)) == right


def test_waking_waits_for_the_end_of_an_exchange(make_llm: Make) -> None:
    llm = make_llm()
    llm.sleep()
    assert GATE.close(LONG)
    waking = started(llm.wake_up)
    try:
        assert llm.snapshot().state == "asleep"  # its thread is free meanwhile
    finally:
        GATE.open()
    joined(waking)
    assert llm.state == "ready"


def test_a_dropped_handle_of_a_sleeping_engine_harms_nobody(llm: LLM) -> None:
    swap_runner(llm, Formula(VOCAB).runner)
    handle: Generation | None = llm.submit(PROMPT, greedy(50, ignore_eos=True))
    assert handle is not None
    llm.sleep(force=True)
    handle.cancel()
    del handle
    assert llm.cancel("req-no") == 0
    llm.check()
    llm.wake_up()
