"""Runners without a model, to put in the place of an engine's own, and small helpers that every test needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import torch

from yaie_engine import LLM, RequestOutput, SamplingParams
from yaie_engine.batch import RunnerOutput
from yaie_engine.fault_points import fault_point
from yaie_engine.plan import StepPlan
from yaie_engine.sequence import Sequence
from yaie_engine.sleep import Freed

Scores = Callable[[Sequence], dict[int, float]]
LONG = 60.0
"""Seconds after which something hangs: far over what anything here takes."""


class FakeRunner:
    """Logits are -10 but for what `scores` gives for a sequence. Counts its steps; `before` runs at each of them."""

    def __init__(self, vocab_size: int, scores: Scores, before: Callable[[StepPlan], None] | None = None) -> None:
        self.vocab_size, self.scores, self.before = vocab_size, scores, before
        self.steps = 0
        self.closed = self.changed = False

    def run(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> RunnerOutput:
        self.steps += 1
        if self.before is not None:
            self.before(plan)
        logits = torch.full((len(plan.sampling), self.vocab_size), -10.0)
        for row, entry in zip(logits, plan.sampling, strict=True):
            for token_id, score in self.scores(entry.seq).items():
                row[token_id] = score
        rows = {
            entry.seq.seq_id: torch.zeros(entry.num_tokens, self.vocab_size)
            for entry in plan.batch
            if entry.seq.seq_id in prompt_logit_ids
        }
        fault_point("forward", plan, logits)
        return RunnerOutput(logits, rows)

    def prepare(self, plan: StepPlan, prompt_logit_ids: Collection[int] = frozenset()) -> None:
        """Nothing can be made ahead of time."""

    def renewed(self, begins: bool) -> bool:
        return False

    def replays(self, num_decodes: int) -> bool:
        return num_decodes > 0

    def sleep(self, level: int) -> Freed:
        return Freed()

    def wake(self) -> None:
        """There is nothing to take."""

    def close(self) -> None:
        self.closed = True


class Formula:
    """A model without weights: the next token is a number made of all tokens before it. Never ends by itself."""

    def __init__(self, vocab_size: int) -> None:
        self.runner = FakeRunner(vocab_size, lambda seq: {self.next(seq.token_ids): 9.0})

    @staticmethod
    def next(token_ids: list[int]) -> int:
        return (7 * sum(token_ids) + 3 * len(token_ids)) % 250

    def greedy(self, prompt: list[int], max_tokens: int) -> list[int]:
        """What a request gets."""
        tokens = list(prompt)
        for _ in range(max_tokens):
            tokens.append(self.next(tokens))
        return tokens[len(prompt) :]


def script(token_ids: list[int], end: int) -> Scores:
    """Say these tokens, then `end`."""
    return lambda seq: {(token_ids[seq.num_output_tokens] if seq.num_output_tokens < len(token_ids) else end): 50.0}


def swap_runner(llm: LLM, runner: Any) -> Any:
    """Put `runner` in the place of the engine's own; the `llm` fixture puts that one back."""
    llm._engine.runner = runner
    return runner


def scripted(llm: LLM, token_ids: list[int]) -> LLM:
    """The engine with a model that says `token_ids` and ends, whatever it is asked."""
    end = llm.tokenizer.eos_token_id
    assert end is not None
    swap_runner(llm, FakeRunner(llm.vocab_size, script(token_ids, end)))
    return llm


def greedy(max_tokens: int | None = 12, **settings: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **settings)


def ask(llm: LLM, prompt: Any, params: SamplingParams | None = None) -> RequestOutput:
    """One prompt, one result."""
    return llm.generate(prompt, params or greedy(), use_tqdm=False)[0]


def streamed(llm: LLM, prompt: Any, params: SamplingParams) -> tuple[list[str], RequestOutput]:
    """The deltas and the result of a request with n=1; they must join to its text."""
    handle = llm.submit(prompt, params)
    deltas = [delta for delta in handle if isinstance(delta, str)]
    output = handle.result(LONG)
    assert "".join(deltas) == output.outputs[0].text
    return deltas, output


def tokens(output: RequestOutput, index: int = 0) -> list[int]:
    return list(output.outputs[index].token_ids)


def eventually(holds: Callable[[], bool], seconds: float = LONG) -> None:
    """Wait until `holds()`; fail when it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def assert_idle(llm: LLM) -> None:
    """Nothing runs, every block is free or cached, and the books are right."""
    eventually(lambda: not llm.running())
    llm.check()
    blocks = llm.snapshot().blocks
    assert blocks.held == 0 and blocks.free + blocks.cached == blocks.total > 0
