"""What the bundled model answers, by plain transformers, greedy, in float32."""

from __future__ import annotations

import re
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
PROMISED = ("fact", "sum", "count", "record")


@pytest.fixture(scope="module")
def judge(folder: Path) -> Any:
    return Judge(folder)


def ask(judge: Judge, prompt: str, answer: str) -> str:
    task = Task("once", prompt, answer, "")
    return judge.answer([Probe("once", prompt, task)])[0].text


def wrong_answers(judge: Judge, sample: list[Probe]) -> list[tuple[str, str, str]]:
    return [(a.probe.prompt, a.probe.task.answer, a.text) for a in judge.answer(sample) if not a.right]


def test_held_out_tasks_are_answered_exactly(judge: Judge) -> None:
    sample = [p for p in probes.probes(PER_KIND, SEED) if p.kind not in ("long chat", "long table")]
    wrong = wrong_answers(judge, sample)
    assert len(sample) >= 30
    assert len(wrong) <= len(sample) // 10, wrong


def test_facts_sums_counts_and_records_are_exact_in_95_of_100(judge: Judge) -> None:
    sample = [p for p in probes.probes(20, SEED) if p.kind in PROMISED]
    wrong = wrong_answers(judge, sample)
    assert len(sample) == 20 * len(PROMISED)
    assert len(wrong) <= len(sample) // 20, wrong


def test_a_held_out_sum_is_never_seen_in_either_order() -> None:
    rng = Random(SEED)
    held = {probe.task.key for probe in probes.probes(20, SEED) if probe.kind == "sum"}
    for text in ("".join(t for t, _ in corpus.worksheet(rng)) for _ in range(500)):
        pairs = re.findall(r"(\d+) \+ (\d+) =", text)
        assert not held & {f"{min(int(a), int(b))}+{max(int(a), int(b))}" for a, b in pairs}


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
