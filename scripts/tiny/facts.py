"""Facts: relations between things, each asked in several phrasings and answered in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from .task import Task


@dataclass(frozen=True, slots=True)
class Relation:
    """Pairs that one sentence joins; `asks` are the phrasings of the question."""

    sentence: str
    asks: tuple[str, ...]
    pairs: dict[str, str]

    def statement(self, subject: str) -> tuple[str, str]:
        """Return the sentence about `subject`, cut before the part that is the answer."""
        start, _, end = self.sentence.partition("{y}")
        start, end = start.format(x=subject).rstrip(), self.pairs[subject] + end.format(x=subject)
        return start[:1].upper() + start[1:], " " + end if start else end


def _read(text: str) -> dict[str, Relation]:
    """Read relations: a headline with name and sentence, questions behind "? ", then pairs."""
    relations: dict[str, Relation] = {}
    for block in text.strip().split("\n\n"):
        headline, *lines = block.split("\n")
        label, _, sentence = headline.removeprefix("[").partition("] ")
        asks = tuple(line.removeprefix("? ") for line in lines if line.startswith("? "))
        entries = "; ".join(line for line in lines if not line.startswith("? ")).split("; ")
        pairs = dict(entry.split(" = ") for entry in entries)
        relations[label] = Relation(sentence, asks, pairs)
    return relations


RELATIONS = _read(Path(__file__).with_name("facts.txt").read_text(encoding="utf-8"))
_ALL = [(relation, subject) for relation in RELATIONS.values() for subject in relation.pairs]


def fact(rng: Random) -> Task:
    """Ask for a known fact; the split holds out single phrasings of it."""
    relation, subject = rng.choice(_ALL)
    ask = rng.choice(relation.asks)
    start, end = relation.statement(subject)
    return Task("fact", ask.format(x=subject), start + end, f"{subject} {ask}")


def statement(rng: Random) -> tuple[str, str]:
    """Return a fact as a plain sentence, cut before its answer."""
    while True:
        relation, subject = rng.choice(_ALL)
        if not relation.sentence.startswith("{y}"):
            return relation.statement(subject)
