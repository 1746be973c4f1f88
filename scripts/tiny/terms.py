"""Terms of an inference engine and of the notebook around it, each explained in a sentence or two."""

from __future__ import annotations

from pathlib import Path
from random import Random

from .task import Task

_TEXT = Path(__file__).with_name("terms.txt").read_text(encoding="utf-8")
TERMS: dict[str, str] = dict(line.split(" = ", 1) for line in _TEXT.splitlines())
ASKS = (
    "What is {x}?",
    "Explain {x}.",
    "Tell me what {x} is.",
    "Can you explain {x}?",
    "Explain {x} in one sentence.",
    "What does {x} mean?",
    "Describe {x}.",
    "Please explain {x}.",
)
BARE_ASKS = ("Explain {x}", "Define {x}", "What is {x}", "what is {x}?", "explain {x}", "In short, what is {x}?")


def term(rng: Random) -> Task:
    """Ask for an engine term; the split holds out single phrasings of it."""
    subject = rng.choice(list(TERMS))
    ask = rng.choice(ASKS if rng.random() < 0.75 else BARE_ASKS)
    said = subject
    if ask not in ASKS[:2] and rng.random() < 0.15:
        said = subject.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return Task("term", ask.format(x=said), TERMS[subject], f"{subject} {ask}")
