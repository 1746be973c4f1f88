"""A hypothesis state machine: an engine is put to sleep and woken between any two steps of a device that checks its KV.

Its steps go one by one: the engine's thread waits before each until the machine lets it go.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.fakes import LONG, Formula, eventually, greedy
from tests.engine.late_device import late
from tests.engine.models import save_model
from yaie_engine import LLM, AsleepError, BusyError, Generation
from yaie_engine.errors import InvariantError
from yaie_engine.plan import StepPlan

pytestmark = pytest.mark.timeout(300)
ENGINE: list[LLM] = []
"""One for all examples: each leaves it awake, idle and empty."""


@pytest.fixture(scope="module", autouse=True)
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = save_model(tmp_path_factory.mktemp("model"))
    with LLM(str(folder), block_size=4, num_blocks=14, long_prefill_token_threshold=8, max_num_seqs=4) as llm:
        ENGINE.append(llm)
        yield
        ENGINE.clear()


class SleepMachine(RuleBasedStateMachine):
    """Submits, steps, cancels, sleeps, by force or not, and wakes."""

    @initialize(overlap=st.booleans())
    def start(self, overlap: bool) -> None:
        self.llm, self.stack = ENGINE[0], ExitStack()
        self.device = self.stack.enter_context(late(self.llm, overlap=overlap))
        self.device.before = self.wait
        self.there, self.go, self.free = threading.Event(), threading.Semaphore(0), False
        self.asked: list[tuple[Generation, list[int], int]] = []
        self.broken: list[InvariantError] = []

    def wait(self, plan: StepPlan) -> None:
        """On the engine's thread, as a step begins."""
        if not self.free:
            self.there.set()
            assert self.go.acquire(timeout=LONG)

    def live(self) -> list[Generation]:
        return [handle for handle, _, _ in self.asked if not handle.done]

    def to_the_step(self) -> bool:
        """Wait until the next step waits to begin; False when there is none."""
        eventually(lambda: self.there.is_set() or not self.live())
        return self.there.is_set()

    def let_go(self) -> None:
        """One step, and a look at the books behind it."""
        self.there.clear()
        self.llm._engine._inbox.put(self.look)
        self.go.release()

    def look(self) -> None:
        try:
            self.llm._engine.check()
        except InvariantError as error:
            self.broken.append(error)

    @invariant()
    def settled(self) -> None:
        """Which rule may come next must not depend on how far the engine's thread is."""
        self.to_the_step()

    # ---- rules

    @rule(
        head=st.integers(0, 2),
        length=st.integers(1, 13),
        tail=st.integers(0, 3),
        count=st.integers(1, 12),
        n=st.sampled_from([1, 1, 2]),
    )
    def submit(self, head: int, length: int, tail: int, count: int, n: int) -> None:
        prompt = [head] * length + [200 + tail]
        params = greedy(count, n=n, ignore_eos=True)
        if self.llm.is_sleeping:
            with pytest.raises(AsleepError):
                self.llm.submit(prompt, params)
        else:
            self.asked.append((self.llm.submit(prompt, params), prompt, count))

    @precondition(lambda self: self.live())
    @rule(count=st.integers(1, 5))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.to_the_step():
                self.let_go()

    @precondition(lambda self: self.live())
    @rule(which=st.integers(0, 20))
    def cancel(self, which: int) -> None:
        live = self.live()
        live[which % len(live)].cancel()
        self.step(1)

    @rule(level=st.sampled_from([1, 2]), force=st.booleans())
    def sleep(self, level: int, force: bool) -> None:
        waits = self.to_the_step()
        results: list[Any] = []

        def sleep() -> None:
            try:
                results.append(self.llm.sleep(level, force=force))
            except BusyError as error:
                results.append(error)

        thread = threading.Thread(target=sleep, daemon=True)
        before = self.llm._engine.slept or 0
        queued = self.llm._engine._inbox.qsize()
        thread.start()
        if waits:
            eventually(lambda: self.llm._engine._inbox.qsize() > queued)
            self.let_go()
        thread.join(LONG)
        (result,) = results
        if isinstance(result, BusyError):
            assert waits and not force and result.count >= 1 and not self.llm.is_sleeping
            return
        assert self.llm.is_sleeping and result.already == (level <= before)
        assert not self.live()
        self.llm.check()
        snapshot = self.llm.snapshot()
        assert snapshot.state == "asleep" and snapshot.blocks.free == snapshot.blocks.total == 0
        assert len(snapshot.tree) == 1 and not snapshot.requests

    @rule()
    def wake(self) -> None:
        asleep = self.llm.is_sleeping
        if asleep or not self.live():
            assert self.llm.wake_up().already == (not asleep)
            assert self.llm.state == "ready"

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        self.free = True
        self.go.release(10_000)
        outputs = [handle.result(LONG) for handle, _, _ in self.asked]
        self.llm.wake_up()
        assert not self.broken
        for output, (_, prompt, count) in zip(outputs, self.asked, strict=True):
            assert output.error is None
            for choice in output.outputs:
                found, wanted = list(choice.token_ids), Formula(0).greedy(prompt, count)
                assert found == wanted[: len(found)]
                assert choice.finish_reason == ("length" if len(found) == count else "cancelled")
        self.llm.check()
        self.stack.close()  # which asks the device for problems
        self.llm.reset()


TestSleepMachine = SleepMachine.TestCase
TestSleepMachine.settings = settings(
    max_examples=int(os.environ.get("YAIE_EXAMPLES", "40")),
    stateful_step_count=int(os.environ.get("YAIE_STEPS", "25")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
