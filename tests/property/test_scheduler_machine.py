"""A hypothesis state machine over pool, tree and scheduler, with a shadow KV that knows what every slot must hold."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.shadow import ShadowEngine

VOCAB = 2
OUTPUT = {"max_tokens": st.integers(1, 8), "seed": st.integers(0, 2), "eos": st.sampled_from([None, None, 0])}


def sampler(seed: int) -> Any:
    """A deterministic next token that depends on the whole prefix."""
    return lambda prefix: (sum((i + 1) * (t + 1) for i, t in enumerate(prefix)) * 7 + len(prefix) * seed) // 3 % VOCAB


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, steps, cancels, fails, preempts, evicts, resets and forks in pools of 1 to 12 blocks, guessing or not.

    Under every policy: each output is what its sequence gets alone, so that no policy changes an answer.
    """

    @initialize(
        total=st.integers(1, 12),
        size=st.sampled_from([1, 2, 4]),
        chunk=st.integers(0, 5),
        budget=st.integers(1, 8),
        seqs=st.integers(1, 4),
        watermark=st.integers(0, 2),
        chunked=st.sampled_from([True, True, True, False]),
        overlap=st.booleans(),
        policy=st.sampled_from(["fcfs", "lpm", "priority", "fair"]),
        ageing=st.integers(1, 12),
        shared=st.integers(0, 3),
        host=st.sampled_from([0, 0, 1, 3, 8, 20]),
        swaps=st.booleans(),
    )
    def start(self, total: int, size: int, **limits: Any) -> None:
        self.engine = ShadowEngine(total, size, **limits)

    prompts = st.lists(st.integers(0, VOCAB - 1), max_size=6)

    def base(self, which: int) -> list[int]:
        return self.engine.all[which % len(self.engine.all)].token_ids if self.engine.all else []

    @rule(
        tail=prompts,
        cut=st.integers(0, 30),
        which=st.integers(0, 20),
        whole=st.booleans(),
        priority=st.sampled_from([0, 0, 0, 1, 2]),
        tenant=st.sampled_from(["", "a", "b"]),
        namespace=st.sampled_from(["", "", "", "salt"]),
        read_cache=st.sampled_from([True, True, True, False]),
        **OUTPUT,
    )
    def add(self, tail: list[int], cut: int, which: int, whole: bool, seed: int, **kind: Any) -> None:
        base = self.base(which)
        self.engine.add((base if whole else base[:cut]) + tail or [0], sample=sampler(seed), **kind)

    @rule(tail=prompts, which=st.integers(0, 20), n=st.integers(2, 4), private=st.booleans(), **OUTPUT)
    def fork(self, tail: list[int], which: int, n: int, private: bool, seed: int, **kind: Any) -> None:
        """n choices of one prompt: the first computes it, the others share it."""
        self.engine.fork(
            self.base(which)[:6] + tail or [1], n, [sampler(seed + i) for i in range(n)], private=private, **kind
        )

    @rule(
        tail=prompts,
        which=st.integers(0, 20),
        seeds=st.tuples(st.integers(0, 2), st.integers(0, 2)),
        n=st.integers(1, 8),
    )
    def add_twins(self, tail: list[int], which: int, seeds: tuple[int, int], n: int) -> None:
        base = self.base(which)
        for seed in seeds:
            self.engine.add(base + tail or [1], max_tokens=n, sample=sampler(seed))

    @rule(n=st.integers(1, 4))
    def step(self, n: int) -> None:
        for _ in range(n):
            self.engine.step()

    @rule(planned=st.integers(0, 3), how=st.sampled_from(["cancel", "preempt"]))
    def step_with_planned_sequence_stopped(self, planned: int, how: str) -> None:
        self.engine.step(stop_planned=(planned, how))

    @rule(which=st.integers(0, 3))
    def step_in_which_one_ends(self, which: int) -> None:
        self.engine.step(ends=which)

    @rule(where=st.sampled_from(["copies", "forward", "memory"]))
    def failed_step(self, where: str) -> None:
        self.engine.step(fail=where)

    @precondition(lambda self: self.engine.all)
    @rule(which=st.integers(0, 20))
    def cancel(self, which: int) -> None:
        self.engine.scheduler.finish(self.engine.all[which % len(self.engine.all)], "cancelled")

    @precondition(lambda self: self.engine.scheduler.running)
    @rule(which=st.integers(0, 20))
    def preempt(self, which: int) -> None:
        running = self.engine.scheduler.running
        self.engine.scheduler.preempt(running[which % len(running)])

    @rule(n=st.integers(1, 3))
    def evict_some(self, n: int) -> None:
        for _ in range(n):
            self.engine.scheduler.tree.evict_one()

    @rule()
    def reset(self) -> None:
        """free + cached is exactly what can be had."""
        pool = self.engine.scheduler.pool
        self.engine.scheduler.host.reset(self.engine.scheduler)
        host = self.engine.scheduler.host.pool
        assert host.num_free == host.total - host.num_held
        assert pool.num_free == pool.total - pool.num_held

    @rule()
    def drain(self) -> None:
        self.engine.drain()

    @rule(
        which=st.integers(0, 20),
        cut=st.integers(0, 40),
        tail=prompts,
        seed=st.integers(0, 2),
        short=st.integers(0, 3),
        out=st.integers(1, 30),
    )
    def alone(self, which: int, cut: int, tail: list[int], seed: int, short: int, out: int) -> None:
        """A sequence of the size of the pool ends alone, whatever is cached, is never preempted and loses no match."""
        self.engine.drain()
        pool = self.engine.scheduler.pool
        most = pool.total * pool.block_size + 1 - short
        prompt = (self.base(which)[:cut] + tail or [0])[: max(1, most - 1)]
        if most - len(prompt) < 1:
            return
        before, best = self.engine.scheduler.num_preemptions, self.engine.longest(prompt)
        seq = self.engine.add(prompt, max_tokens=min(out, most - len(prompt)), sample=sampler(seed))
        assert seq is not None
        self.engine.drain()
        assert seq.state == "finished" and self.engine.scheduler.num_preemptions == before
        if self.engine.host_kv:
            assert (seq.num_cached_tokens or 0) >= min(best, len(prompt) - 1)
        else:
            assert seq.num_cached_tokens == min(best, len(prompt) - 1)

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.drain()
            self.engine.check()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=int(os.environ.get("YAIE_EXAMPLES", "600")),
    stateful_step_count=int(os.environ.get("YAIE_STEPS", "40")),
    phases=[p for p in Phase if p is not Phase.shrink or os.environ.get("YAIE_SHRINK") != "0"],
    derandomize="YAIE_MUTANT" in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
