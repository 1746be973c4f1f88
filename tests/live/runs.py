"""Recordings of real schedulers whose model is a script: four runs of growing size, the same in every session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.engine.fakes import LONG, FakeRunner, swap_runner
from yaie_engine import LLM, Generation, SamplingParams
from yaie_engine.plan import StepPlan
from yaie_engine.sequence import Sequence

LUMEN = (
    "You are the support assistant of Lumen, which makes home batteries. Answer in at most two sentences and name the "
    "page of the manual. If you do not know, say so. "
)
REVIEW = "Review the following Python function. List bugs first, then style. Do not rewrite the code.\n"
CLASSIFY = "Classify the sentence as order, refund or other. Sentence: my parcel is late. Class: other.\n"
ANSWER = (
    "No. The log is kept in flash memory and survives a reset (page 47). Hold the green key for three seconds; if the "
    "display stays dark, check the fuse. A café in 東京 had the same 🎉 question. "
)
QUESTIONS = (
    LUMEN + "My battery blinks red twice after a power cut. What does it mean?",
    REVIEW + "def mean(xs):\n    return sum(xs) / len(xs)\n",
    LUMEN + "How long is the warranty on the wall bracket?",
    LUMEN + "How do I read the log of last Tuesday?",
    CLASSIFY + "Sentence: I want my money back. Class:",
    REVIEW + "class Cache(dict):\n    def __missing__(self, key):\n        ...\n",
    LUMEN + "The green key does nothing. Is the log lost?",
    CLASSIFY + "Sentence: two more boxes please. Class:",
    REVIEW + "async def fetch(urls):\n    return [await get(u) for u in urls]\n",
    LUMEN + "Can I mount two batteries side by side in a cellar?",
    CLASSIFY + "Sentence: where is my invoice? Class:",
    LUMEN + "Which page explains the log format?",
)


class Script:
    """Says a text from a place that differs by request; `arrivals` are submitted after the step they name."""

    def __init__(self, llm: LLM, step_s: float = 0.0) -> None:
        self.llm = llm
        self.tokens = llm.tokenize(ANSWER)
        self.arrivals: dict[int, list[tuple[str, SamplingParams]]] = {}
        self.handles: list[Generation] = []
        self.step_s = step_s
        self.runner = swap_runner(llm, FakeRunner(llm.vocab_size, self._next, self._before))

    def _next(self, seq: Sequence) -> dict[int, float]:
        return {self.tokens[(7 * seq.seq_id + seq.num_output_tokens) % len(self.tokens)]: 50.0}

    def _before(self, plan: StepPlan) -> None:
        time.sleep(self.step_s)
        self._submit(self.runner.steps)

    def _submit(self, step: int) -> None:
        for prompt, params in self.arrivals.pop(step, ()):
            self.handles.append(self.llm.submit(prompt, params))

    def play(self) -> None:
        """Run until everything that arrives has ended."""
        self._submit(0)
        done = 0
        while done < len(self.handles) or self.arrivals:
            self.handles[done].result(LONG)
            done += 1


def sized(max_tokens: int, **settings: Any) -> SamplingParams:
    """Parameters of a request that writes exactly so many tokens."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **settings)


def empty() -> LLM:
    """An engine that has done nothing."""
    return LLM("tiny", num_blocks=160, max_num_batched_tokens=128)


def small() -> LLM:
    """Three requests, two of which share a prefix."""
    llm = LLM("tiny", num_blocks=64, max_num_batched_tokens=64)
    script = Script(llm, 0.001)
    script.arrivals = {0: [(QUESTIONS[0], sized(12))], 3: [(QUESTIONS[2], sized(9))], 5: [(QUESTIONS[4], sized(7))]}
    script.play()
    return llm


def busy() -> LLM:
    """Twelve requests over some 100 steps: chunks, shared prefixes, preemption, eviction, two choices, a salt."""
    llm = LLM("tiny", num_blocks=26, max_num_batched_tokens=64, max_num_seqs=6, max_model_len=200)
    script = Script(llm, 0.001)
    for place, question in enumerate(QUESTIONS):
        settings = {"n": 2} if place == 3 else {"cache_salt": "tenant"} if place == 10 else {}
        script.arrivals.setdefault(place * 4, []).append((question, sized(18 + 7 * (place % 4), **settings)))
    script.play()
    return llm


def swaps() -> LLM:
    """Six requests that decode in a pool for half of them: host blocks have room for three of four that lose theirs."""
    llm = LLM("tiny", num_blocks=12, num_cpu_blocks=8, preemption="swap", max_num_batched_tokens=64, max_num_seqs=6)
    script = Script(llm, 0.001)
    asked = [(question[-40:], sized(40)) for question in QUESTIONS[1:7]]
    script.arrivals = {0: asked[:1], 2: asked[1:]}  # those that come within a step are there with the next: no chance
    script.play()
    return llm


def full() -> LLM:
    """Two hundred requests over 20,000 blocks."""
    llm = LLM("tiny", num_blocks=20_000, max_num_batched_tokens=512, max_num_seqs=64)
    script = Script(llm)
    for place in range(200):
        text = QUESTIONS[place % 12] + f" Case {place}. " + ANSWER * (place % 5)
        script.arrivals.setdefault(place * 2, []).append((text, sized(60 + 31 * (place % 6))))
    script.play()
    return llm


RUNS: dict[str, Callable[[], LLM]] = {"empty": empty, "small": small, "busy": busy, "swaps": swaps, "full": full}


def enlarged(run: dict[str, Any], blocks: int) -> dict[str, Any]:
    """The same recording in a larger pool: what it does not use is free."""
    return {**run, "engine": {**run["engine"], "num_blocks": blocks}}
