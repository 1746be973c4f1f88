"""What the bundled model answers, by plain transformers, greedy, in float32."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tiny import copying, corpus, facts, probes
from tiny.evaluate import Judge
from tiny.probes import Probe
from tiny.task import Task

SEED = 20
PER_KIND = 2


@pytest.fixture(scope="module")
def judge(folder: Path) -> Any:
    return Judge(folder)


def ask(judge: Judge, prompt: str, answer: str) -> str:
    task = Task("once", prompt, answer, "")
    return judge.answer([Probe("once", prompt, task)])[0].text


def test_held_out_tasks_are_answered_exactly(judge: Judge) -> None:
    sample = [p for p in probes.probes(PER_KIND, SEED) if p.kind not in ("story", "long chat", "long table")]
    answers = judge.answer(sample)
    wrong = [(a.probe.prompt, a.probe.task.answer, a.text) for a in answers if not a.right]
    assert len(sample) >= 30
    assert len(wrong) <= len(sample) // 10, wrong


def test_held_out_tasks_are_never_seen_in_training() -> None:
    rng = Random(SEED)
    held = {probe.task.prompt for probe in probes.probes(20, SEED) if probe.kind == "fact"}
    seen = {corpus.draw(facts.fact, rng, held_out=False).prompt for _ in range(5000)}
    assert not held & seen


def test_a_context_of_two_thousand_tokens_stays_sane(judge: Judge) -> None:
    rng = Random(SEED)
    text = ""
    while len(judge.tokenizer.encode(text)) < 1900:
        text += probes.text_of(corpus.chat(rng, 3))
    prompt = text + probes.ask("What is the capital of France?")
    assert 1900 <= len(judge.tokenizer.encode(prompt)) <= 2400
    assert ask(judge, prompt, "") == "The capital of France is Paris."


def test_a_chat_remembers_a_name(judge: Judge) -> None:
    start = "".join(
        t for t, _ in [corpus.said("user", "My name is Zorbika."), *corpus.answered("Nice to meet you, Zorbika.")]
    )
    assert ask(judge, start + probes.ask("What is my name?"), "") == "Your name is Zorbika."


def test_a_story_follows_from_its_first_words(judge: Judge) -> None:
    text = ask(judge, "Once upon a time", "")
    assert len(text.split()) > 40
    assert text.endswith((".", '"', "!"))


def test_copies_may_hold_invented_words() -> None:
    rng = Random(SEED)
    answers = {copying.repeating(rng).answer for _ in range(200)}
    assert len(answers) == 200
