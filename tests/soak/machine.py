"""Rows 1 and 2: the state machine over pool, tree and scheduler, with as many examples as there is time for."""

from __future__ import annotations

import traceback
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.property.shadow import ShadowEngine
from tests.property.test_scheduler_machine import VOCAB, SchedulerMachine, sampler

from .figure import Figure

STEPS = 50
SPARE_STEPS = 10


class Counts:
    """Of one row."""

    steps = drains = tokens = preemptions = idle = 0


def run_machine(machine: type[SchedulerMachine], examples: int, steps: int, number: int) -> tuple[str, ...]:
    """The fault found, if any, as its last line; hypothesis prints the shrunk case."""
    how = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    try:
        run_state_machine_as_test(seed(number)(machine), settings=how)  # type: ignore[arg-type]
    except Exception as error:
        traceback.print_exc()
        return (f"{type(error).__name__}: {error}"[:300],)
    return ()


def state_machine(size: int, number: int) -> Figure:
    """`size` machines of 50 rules; after each rule the books are checked against blocks.md's rules."""
    counts = Counts()

    class Counting(SchedulerMachine):
        def check_invariants(self, *given: Any, **named: Any) -> None:
            counts.steps += 1
            super().check_invariants(*given, **named)

    faults = run_machine(Counting, size, STEPS, number)
    return Figure(f"{size} machines", f"{counts.steps:,} checks, {len(faults)} breaches", faults)


def drained(engine: ShadowEngine, counts: Counts) -> None:
    """Step without new work until nothing is left; a step in which nothing is computed must have had a reason."""
    scheduler = engine.scheduler
    before, tokens, steps = scheduler.num_preemptions, 0, 0
    todo = [*scheduler.waiting, *scheduler.running]
    bound = SPARE_STEPS + sum(seq.num_prompt_tokens + 2 * seq.max_tokens for seq in todo) * (1 + len(todo))
    while not scheduler.idle:
        computed = sum(entry.num_tokens for entry in engine.step().batch)
        counts.idle += not computed
        tokens, steps = tokens + computed, steps + 1
        preempted = scheduler.num_preemptions - before
        assert steps <= tokens + preempted + SPARE_STEPS, f"{steps} steps, {tokens} tokens, {preempted} preemptions"
        assert steps <= bound, f"{steps} steps for {len(todo)} sequences: they undo each other's work"
    assert all(not seq.live for seq in todo)
    counts.drains, counts.tokens = counts.drains + bool(todo), counts.tokens + tokens
    counts.preemptions += scheduler.num_preemptions - before


def liveness(size: int, number: int) -> Figure:
    """`size` machines in a random state, each then left to end what it has."""
    counts = Counts()

    class Draining(SchedulerMachine):
        @rule()
        def drain(self) -> None:
            drained(self.engine, counts)

        def teardown(self) -> None:
            if hasattr(self, "engine"):
                for i in range(6):
                    self.engine.add(self.base(i)[:4] + [i % VOCAB] * (i + 1), max_tokens=6, sample=sampler(i))
                drained(self.engine, counts)
            super().teardown()

    faults = run_machine(Draining, size, 20, number)
    told = f"{counts.tokens:,} tokens, {counts.preemptions} preemptions, {counts.idle} steps without a token"
    return Figure(f"{counts.drains} drains", f"{len(faults)} hung; {told}", faults)
