"""Every fault point with every kind of error, under a real model and a mixed load: who fails, and who must not notice.

`rounds(count, seed)` is the run of any size; `python -m tests.fault.faults 200 1` prints its figures.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.engine.fakes import LONG, greedy
from tests.engine.test_overlap import submitted
from tests.fault.engines import engine, leaks
from yaie_engine import LLM, EngineDeadError, RequestOutput, YaieError
from yaie_engine.fault_points import OF_RECORDER, OF_REQUEST, OF_STEP, armed
from yaie_engine.plan import StepPlan
from yaie_engine.request import Request

NAN, LOSS = "NaN logits", "device loss"
ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("planted"),
    "MemoryError": lambda: MemoryError("planted"),
    "OutOfMemoryError": lambda: torch.OutOfMemoryError("planted"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("planted"),
    LOSS: lambda: RuntimeError("CUDA error: an illegal memory access was encountered"),
}
DEADLY = (*OF_STEP, "score", "logprobs")
"""Where an error that says that the device is lost is believed: elsewhere no device has a part in it. Texts of
log-probabilities are made for prompts, while the step goes on, and for answers, when it is over."""
PAIRS = [
    *itertools.product((*OF_STEP, *OF_REQUEST, *OF_RECORDER), ERRORS),
    ("forward", NAN),
    ("sample", NAN),
]
PROMPTS = [[(start + 3 * i) % 250 for i in range(length)] for start, length in ((1, 9), (1, 14), (40, 5), (90, 21))]
Answers = dict[int, tuple[int, ...]]


@dataclass(slots=True)
class Faults:
    """What a run came to: rounds by who failed, and all that was not as it must be."""

    seed: int
    rounds: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong


class Planted:
    """Raises once, at the n-th call of a point, or spoils one row of logits there; notes whose fault it was."""

    def __init__(self, llm: LLM, kind: str, at: int) -> None:
        self.llm, self.kind, self.at = llm, kind, at
        self.calls, self.done = 0, False
        self.guilty: str | None = None
        self.present: set[str] = set()

    def __call__(self, *context: Any) -> None:
        self.calls += 1
        if self.done or self.calls < self.at:
            return
        plan = next((each for each in context if isinstance(each, StepPlan)), None)
        if self.kind == NAN:
            if plan is None or not plan.sampling:
                return
            row = random.Random(self.calls).randrange(len(plan.sampling))
            self.guilty = plan.sampling[row].seq.request_id
            with torch.inference_mode():
                context[-1][row] = math.nan
            self.done = True
            return
        self.guilty = next((each.request_id for each in context if isinstance(each, Request)), None)
        self.present = {entry.seq.request_id for entry in plan.batch} if plan else set()
        self.done = True
        raise ERRORS[self.kind]()


def load(llm: LLM, rng: random.Random) -> list[tuple[list[int], Any]]:
    """Some requests of different kinds; those with the same prompt share its blocks."""
    kinds: list[dict[str, Any]] = [{}, {"n": 2}, {"logprobs": 1}, {"prompt_logprobs": 1}, {"stop": ["never said"]}]
    asks = [(PROMPTS[i], greedy(rng.randrange(5, 12), ignore_eos=True, **rng.choice(kinds))) for i in range(4)]
    return [*asks, (PROMPTS[0], greedy(8, ignore_eos=True, prompt_logprobs=1, logprobs=1))]


def rounds(count: int, seed: int, overlap: bool = False) -> Faults:
    """`count` rounds, each point with each kind in turn. An engine that had to end is replaced."""
    rng, found, left = random.Random(seed), Faults(seed), count
    pairs = itertools.cycle(rng.sample(PAIRS, len(PAIRS)))
    with engine() as quiet:
        right = {i: _answer(quiet, prompt) for i, prompt in enumerate(PROMPTS)}
    while left > 0:
        with engine(num_blocks=40) as llm:
            llm._engine.overlap = overlap
            while left > 0 and llm.state == "ready":
                left -= 1
                _round(llm, rng, next(pairs), right, found)
    return found


def _answer(llm: LLM, prompt: list[int]) -> tuple[int, ...]:
    return llm.generate(prompt, greedy(12, ignore_eos=True), use_tqdm=False)[0].outputs[0].token_ids


def _round(llm: LLM, rng: random.Random, pair: tuple[str, str], right: Answers, found: Faults) -> None:
    point, kind = pair
    fault, asks = Planted(llm, kind, rng.randrange(1, 5)), load(llm, rng)
    if point == "score" or (point == "plan" and llm._engine.overlap):
        fault.at = min(fault.at, 2)  # for each chunk of a prompt that is scored; later steps are guessed
    with armed(point, fault):
        outputs = [handle.result(LONG) for handle in submitted(llm, asks)]
    failed = {output.request_id for output in outputs if output.error is not None}
    found.failed += len(failed)
    complaints = (
        [f"{len(failed)} failed, the guilty one was {fault.guilty}"] if not _blamed(point, fault, failed) else []
    )
    for output, (prompt, params) in zip(outputs, asks, strict=True):
        complaints += _complaints(output, right[PROMPTS.index(prompt)], params.max_tokens or 0)
    if kind == LOSS and point in DEADLY and (point != "logprobs" or llm.state != "ready"):
        found.rounds["engine"] += 1
        if not all(isinstance(each.error, EngineDeadError) for each in outputs if each.error) or not failed:
            complaints.append("a lost device was not told as one")
    else:
        found.rounds["nobody" if not failed else "one" if len(failed) == 1 else "several"] += 1
        for i, prompt in enumerate(PROMPTS):
            if _answer(llm, prompt) != right[i]:
                complaints.append(f"the next answer to prompt {i} is another one")
        complaints += leaks(llm)
    if not fault.done:
        complaints.append("the point was never passed")
    found.wrong += [f"{point}, {kind}, call {fault.at}: {complaint}" for complaint in complaints]


def _blamed(point: str, fault: Planted, failed: set[str]) -> bool:
    """Whether those failed who had to: the guilty one where it has a name, else nobody beside those in the step."""
    if fault.kind == LOSS and point in DEADLY:
        return True
    if fault.kind in ("OutOfMemoryError", "MemoryError") and not failed:
        return point in ("forward", "sample", "score", "logprobs", *OF_RECORDER)  # done again in a smaller step
    if point in OF_RECORDER:
        return not failed
    if fault.guilty is not None:
        return failed == {fault.guilty}
    if point in OF_REQUEST:
        return len(failed) == 1
    return bool(failed) and (not fault.present or failed <= fault.present)


def _complaints(output: RequestOutput, right: tuple[int, ...], wanted: int) -> list[str]:
    """What is wrong with one result: an error that is none of ours, other tokens, too few of them."""
    found = []
    if output.error is not None and not isinstance(output.error, YaieError):
        found.append(f"a reader got {output.error!r}")
    for choice in output.outputs:
        if choice.token_ids != right[: len(choice.token_ids)]:
            found.append(f"{output.request_id}/{choice.index} has other tokens than without a fault")
        if output.error is None and len(choice.token_ids) != wanted:
            found.append(f"{output.request_id}/{choice.index} has {len(choice.token_ids)} tokens of {wanted}")
    return found


if __name__ == "__main__":
    result = rounds(int(sys.argv[1]), int(sys.argv[2]))
    print(*result.wrong, result, sep="\n")
    sys.exit(not result.ok)
