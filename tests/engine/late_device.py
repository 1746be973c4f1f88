"""A device that works by itself: `run` only queues, results are there when somebody waits; and the log of who did what.

Its memory is a shadow: the KV of a slot is the tuple of all tokens up to its position. So every step checks, in the
order in which steps are queued, that the blocks it was told to read hold what they must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.engine.fakes import Formula
from yaie_engine import LLM
from yaie_engine.batch import RunnerOutput
from yaie_engine.plan import StepPlan
from yaie_engine.sleep import Freed

Next = Callable[[list[int]], int]


class LateDevice:
    """In the place of `llm`'s runner and before its sampler. `before` runs whenever a step is queued.

    Decodes are launched at once, unless it is `slow`.
    """

    def __init__(self, llm: LLM, next_token: Next = Formula.next) -> None:
        self.size, self.vocab, self.next = llm.snapshot().blocks.block_size, llm.vocab_size, next_token
        self.kv: dict[tuple[int, int], tuple[int, ...]] = {}
        self.log: list[tuple[str, int]] = []
        self.problems: list[str] = []
        self.before: Callable[[StepPlan], None] = lambda plan: None
        self.slow = self.asleep = False
        self.prepared = self.taken = 0
        self._queued: list[tuple[int, torch.Tensor, list[int]]] = []

    # ---- the runner

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        if self.asleep:
            self.problems.append(f"step {plan.step} is prepared while the engine sleeps")
        plan.inputs = self._tables(plan)
        self.prepared += 1
        self.log.append(("prepare", plan.step))

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        self.before(plan)
        if self.asleep:
            self.problems.append(f"step {plan.step} is queued while the engine sleeps")
        self.log.append(("launch", plan.step))
        if plan.inputs is not None:
            self.taken += 1
            if plan.inputs != self._tables(plan):
                self.problems.append(f"step {plan.step} runs on other inputs than were made for it")
        for source, target in plan.copies:
            for offset in range(self.size):
                self.kv[target, offset] = self.kv.get((source, offset), ())
        for entry in plan.batch:
            tokens = entry.seq.token_ids[: entry.stop]
            if len(tokens) < entry.stop:
                self.problems.append(f"step {plan.step}: an id is not there when it is queued")
            for position in range(entry.first_write, entry.stop):
                self.kv[self._slot(entry.table, position)] = tuple(tokens[: position + 1])
        for entry in plan.batch:
            for position in range(entry.stop):
                if self.kv.get(self._slot(entry.table, position)) != tuple(entry.seq.token_ids[: position + 1]):
                    self.problems.append(f"step {plan.step}, {entry.seq.label}: slot {position} holds something else")
        logits = torch.full((len(plan.sampling), self.vocab), torch.nan)
        answers = [self.next(list(entry.seq.token_ids)) for entry in plan.sampling]
        self._queued.append((plan.step, logits, answers))
        rows = {
            e.seq.seq_id: torch.zeros(e.num_tokens, self.vocab) for e in plan.batch if e.seq.seq_id in prompt_logit_ids
        }
        return RunnerOutput(logits, rows)

    changed = False

    def renewed(self, begins: bool) -> bool:
        return False

    def replays(self, num_decodes: int) -> bool:
        return num_decodes > 0 and not self.slow

    def sleep(self, level: int) -> Freed:
        """All KV is lost, and so is what was queued or made ahead of time."""
        self.kv.clear()
        self.log.append(("sleep", level))
        self.asleep = True
        return Freed()

    def wake(self) -> None:
        self.log.append(("wake", 0))
        self.asleep = False

    def close(self) -> None:
        """Nothing to free."""

    # ---- between sampler and host

    def started(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """`Sampler.start` on logits that are not there yet."""

        def run(logits: torch.Tensor, rows: Any) -> Callable[[], Any]:
            step, mine, answers = self._queued.pop()

            def wait() -> Any:
                self.log.append(("wait", step))
                mine.fill_(-10.0)
                for row, answer in zip(mine, answers, strict=True):
                    row[answer] = 9.0
                return start(mine, rows)()

            return wait

        return run

    def _tables(self, plan: StepPlan) -> list[Any]:
        return [(entry.seq.label, entry.start, entry.num_tokens, list(entry.table)) for entry in plan.batch]

    def _slot(self, table: list[int], position: int) -> tuple[int, int]:
        return table[position // self.size], position % self.size


@contextmanager
def late(llm: LLM, next_token: Next = Formula.next, overlap: bool = True) -> Iterator[LateDevice]:
    """`llm` on such a device."""
    engine, device = llm._engine, LateDevice(llm, next_token)

    def logged(owner: Any, name: str, label: str, step: Callable[..., int]) -> None:
        function = getattr(owner, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            device.log.append((label, step(*args)))
            return function(*args, **kwargs)

        patch.setattr(owner, name, run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "runner", device)
        patch.setattr(engine, "overlap", overlap)
        patch.setattr(engine.sampler, "start", device.started(engine.sampler.start))
        logged(engine.scheduler, "schedule", "schedule", lambda: engine.scheduler.step + 1)
        logged(engine.scheduler, "complete", "complete", lambda plan, *_: plan.step)
        logged(engine.delivery, "accept", "deliver", lambda request, choice, token: choice.seq.num_output_tokens)
        logged(engine.recorder, "step", "record", lambda plan, *_: plan.step)
        yield device
    assert device.problems == []


def waits_per_step(device: LateDevice) -> Counter[int]:
    """How often the host waited for each step."""
    return Counter(step for what, step in device.log if what == "wait")
