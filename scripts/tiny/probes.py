"""Probes: held-out tasks as prompts of an engine, in three frames, over several turns and in long contexts."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from . import copying, corpus, talk
from .task import Task, TaskMaker, draw

EXTRA_KINDS = ("memory", "long chat", "long table")
_LONG_CHARACTERS = 5200  # about 2,000 tokens


@dataclass(frozen=True, slots=True)
class Probe:
    """One prompt with its task; `kind` names the row of the table."""

    kind: str
    prompt: str
    task: Task


def frame(task: Task, number: int) -> str:
    """Write the task as a chat, four times of six, else as a plain question or bare."""
    if number % 6 == 4:
        return f"Question: {task.prompt}\nAnswer:"
    if number % 6 == 5:
        return task.prompt
    start = corpus.said("system", corpus.SYSTEMS[0])[0] if number % 2 else ""
    return start + ask(task.prompt)


def ask(prompt: str) -> str:
    """Write a user message and the start of the answer."""
    return f"{corpus.said('user', prompt)[0]}{corpus.TURN_START}assistant\n"


def text_of(document: corpus.Document) -> str:
    """Join a document without its end mark."""
    return "".join(text for text, _ in document).removesuffix(corpus.END_OF_TEXT)


def memory(rng: Random) -> Probe:
    """Tell something, talk of something else, then ask for it."""
    (tell, reply), (question, answer) = talk.memory(rng)
    between = text_of(corpus.chat(rng, rng.randrange(1, 4)))
    told = text_of([corpus.said("user", tell), *corpus.answered(reply)])
    return Probe("memory", told + between + ask(question), Task("memory", question, answer, ""))


def long_chat(rng: Random) -> Probe:
    """Ask a held-out task after a conversation of about 2,000 tokens."""
    text = ""
    while len(text) < _LONG_CHARACTERS:
        text += text_of(corpus.chat(rng, 3))
    task = draw(rng.choice(list(corpus.MAKERS)[1:]), rng, held_out=False)
    return Probe("long chat", text + ask(task.prompt), task)


def long_table(rng: Random) -> Probe:
    """Ask for one entry of a table of about 2,000 tokens."""
    task = copying.lookup(rng, 90)
    return Probe("long table", ask(task.prompt), task)


def probes(count: int, seed: int) -> list[Probe]:
    """Return `count` probes of each kind, the same for the same seed."""
    rng, found = Random(f"probe {seed}"), []
    makers: list[TaskMaker] = [maker for maker in corpus.MAKERS if maker is not talk.small_talk]
    for maker in makers:
        tasks = [draw(maker, rng, held_out=True) for _ in range(count)]
        found += [Probe(task.kind, frame(task, number), task) for number, task in enumerate(tasks)]
    for special in (memory, long_chat, long_table):
        found += [special(rng) for _ in range(count)]
    return found
