"""Load on a server, as people make it: requests come when due, whether or not the earlier ones are answered."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "body",
]
"""Common words: most tokenizers have a token for each, so a prompt of n words has about n tokens."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent. `rate` is requests a second (infinite: all at once), lengths are in tokens and vary by
    `range_ratio` around the given ones, `most` bounds the requests in flight, `timeout` is in seconds."""

    model: str
    count: int = 100
    rate: float = math.inf
    input_len: int = 128
    output_len: int = 64
    range_ratio: float = 0.0
    seed: int = 0
    warmups: int = 1
    most: int = 1000
    timeout: float = 600.0
    chat: bool = False
    ignore_eos: bool = False

    @property
    def path(self) -> str:
        """The route."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"


@dataclass(frozen=True, slots=True)
class Due:
    """One request: seconds after the start at which it comes, its text, and how many tokens it wants."""

    at: float
    prompt: str
    tokens: int

    def body(self, load: Load) -> dict[str, object]:
        """What is sent. Only `ignore_eos` is not of the OpenAI API; it is sent when asked for."""
        asked = {"messages": [{"role": "user", "content": self.prompt}]} if load.chat else {"prompt": self.prompt}
        more = {"ignore_eos": True} if load.ignore_eos else {}
        return {
            **asked,
            "model": load.model,
            "max_tokens": self.tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **more,
        }


def schedule(load: Load) -> list[Due]:
    """All requests in the order they come: gaps are exponential, so arrivals are a Poisson process."""
    arrivals, lengths, words = (random.Random(f"{load.seed}/{part}") for part in ("arrivals", "lengths", "words"))
    found, at = [], 0.0
    for _ in range(load.count):
        at += arrivals.expovariate(load.rate) if math.isfinite(load.rate) else 0.0
        found.append(_due(load, at, lengths, words))
    return found


def warmups(load: Load) -> list[Due]:
    """Requests that come before all others and do not count."""
    draw = random.Random(f"{load.seed}/warm-up")
    return [_due(load, 0.0, draw, draw) for _ in range(load.warmups)]


def _due(load: Load, at: float, lengths: random.Random, words: random.Random) -> Due:
    prompt, tokens = (
        _varied(load.input_len, load.range_ratio, lengths),
        _varied(load.output_len, load.range_ratio, lengths),
    )
    return Due(at, " ".join(words.choices(WORDS, k=prompt)), tokens)


def _varied(length: int, ratio: float, draw: random.Random) -> int:
    return max(1, draw.randint(math.floor(length * (1 - ratio)), math.ceil(length * (1 + ratio))))
