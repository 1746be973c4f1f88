"""A scheduler that is driven without model, engine and checks: for runs that are long rather than tricky."""

from __future__ import annotations

from typing import Any

from yaie_engine.plan import StepPlan
from yaie_engine.policies import make_policy
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits


class Unchecked:
    """Every sequence counts up from its last token until it has its `max_tokens`."""

    def __init__(self, total: int = 256, size: int = 4, policy: str = "fcfs", ageing: int = 512, **limits: Any) -> None:
        self.scheduler = Scheduler(total, size, Limits(watermark=0, **limits), make_policy(policy, ageing))
        self.all: list[Sequence] = []

    def add(self, prompt: list[int], max_tokens: int = 1, **kind: Any) -> Sequence:
        """Queue one."""
        seq = Sequence(len(self.all), f"r{len(self.all)}", list(prompt), len(prompt), max_tokens, **kind)
        self.all.append(seq)
        self.scheduler.add(seq)
        return seq

    def step(self) -> StepPlan:
        """One step that succeeds."""
        plan = self.scheduler.schedule()
        sampling = [entry.seq for entry in plan.sampling]
        self.scheduler.complete(plan, [seq.token_ids[-1] + 1 for seq in sampling])
        for seq in sampling:
            if seq.num_output_tokens == seq.max_tokens:
                self.scheduler.finish(seq, "finished")
        self.scheduler.changes.take()
        return plan

    def drain(self) -> None:
        """Until nothing is left."""
        while not self.scheduler.idle:
            self.step()
