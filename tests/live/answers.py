"""Answers of the bundled model and made-up ones, as the token inspector gets them."""

from __future__ import annotations

import functools
import math
import random
import time
from typing import Any

from yaie_engine import LLM, Logprob, SamplingParams
from yaie_magic.completion import Completion
from yaie_magic.inspector import Inspector
from yaie_magic.run import Run
from yaie_widgets.inspection import Answer, Blocks, Reading, read_rows
from yaie_widgets.inspection.scale import SCALES
from yaie_widgets.safe_text import visible_runs

INTRODUCTION = (
    "You are a patient teacher. You explain things to children in short sentences, with one picture for each of them. "
    "You never use a word that a child of seven does not know, and you always end with a question.\n"
)
QUESTION = "Once upon a time there was a little fox who lived under a hill. One day"


def complete(llm: LLM, prompt: Any, **settings: Any) -> Completion:
    """The finished completion of a prompt."""
    params = SamplingParams(**settings)
    return Completion(Run(llm.submit(prompt, params), llm, prompt, params)).wait(60)


@functools.cache
def told() -> Inspector:
    """A story of the bundled model with a cached head, and two branches, one of them of the other."""
    with LLM("tiny", num_blocks=64) as llm:
        complete(llm, INTRODUCTION + "What is rain?", max_tokens=4, temperature=0)
        story = complete(llm, INTRODUCTION + QUESTION, max_tokens=60, temperature=1.1, seed=5, logprobs=5)
        inspector = story.inspect()
        for of, position in ((0, 6), (1, 12)):
            answer = inspector.answers[of]
            assert answer.rows is not None
            row = answer.rows[position]
            assert row is not None
            other = next(each for each in row.candidates if each.token_id != answer.output[position])
            inspector.branch(position, other.token_id, of).wait(60)
            settled(inspector, of + 1)
        return inspector


@functools.cache
def plain() -> Answer:
    """An answer without log-probabilities."""
    with LLM("tiny", num_blocks=64) as llm:
        return complete(llm, QUESTION, max_tokens=40, temperature=0).inspect().answers[0]


def settled(inspector: Inspector, number: int) -> None:
    """Wait until the answer of a branch has its end."""
    end = time.monotonic() + 30
    while inspector.answers[number].reason is None:
        assert time.monotonic() < end, "the branch did not end"
        time.sleep(0.01)


def made(
    pieces: list[str], *, prompt: int = 3, top: int = 5, seed: int = 1, running: bool = False, **facts: Any
) -> Answer:
    """An answer whose token i has the text `pieces[i]` and invented probabilities; alternatives are other pieces."""
    luck = random.Random(seed)
    count = len(pieces)
    rows = []
    for at in range(prompt, count):
        others = [(at + step) % count for step in range(1, top)]
        shares = sorted((luck.random() ** 4 for _ in range(top)), reverse=True)
        total = sum(shares) * luck.uniform(1.0, 1.4)
        ranked = [at, *others] if luck.random() < 0.7 else [*others[:1], at, *others[1:]]
        rows.append(
            {i: Logprob(math.log(s / total), r, "") for r, (i, s) in enumerate(zip(ranked, shares, strict=True), 1)}
        )
    settings = {"name": "req-1", "cached": 0, "reason": None if running else "stop", **facts}
    return Answer(
        prompt=tuple(range(prompt)),
        output=tuple(range(prompt, count)),
        rows=read_rows(rows, 5000),
        blocks=Blocks(16, tuple(range(100, 100 + count // 16))),
        readings={i: Reading(tuple(visible_runs(piece))) for i, piece in enumerate(pieces)},
        **settings,
    )


def long_answer(tokens: int = 10_000) -> Answer:
    """A text of so many tokens, one in fifty of them a line break."""
    words = ["the", "old", "fox", "looked", "at", "a", "small", "light", "behind", "two", "hills", "and", "smiled"]
    pieces = ["\n" if at % 50 == 49 else " " + words[at * 7 % len(words)] for at in range(tokens)]
    return made(pieces, prompt=400, cached=240)


def state(*answers: Answer, colour: str = "probability") -> dict[str, Any]:
    """The whole state that a page gets."""
    return {
        "kind": "whole",
        "answers": [answer.to_dict() for answer in answers],
        "scales": SCALES,
        "colour": colour,
    }
