"""The workloads of `yaie bench` and of the comparison with peers: prompts of token ids, the same for whoever answers.

How long prompts and answers are is the same in every repetition; which tokens a prompt has differs from one repetition
to the next, so that nothing an earlier one left in a cache can help.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

LENGTHS_SEED = 7
LOWEST_ID = 300
"""Ids below are special tokens, bytes and the like in most vocabularies; smaller vocabularies leave out an eighth."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the ids of a prompt, and how many tokens are to be generated (an end of text does not end it)."""

    prompt: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that arrive all at once, or each when the one before is answered."""

    name: str
    words: str
    asks: tuple[Ask, ...]
    at_once: bool

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer together."""
        return max(len(ask.prompt) + ask.tokens for ask in self.asks)

    def part(self, count: int, tokens: int | None = None) -> Workload:
        """The first `count` requests, each of which generates at most `tokens`."""
        asks = self.asks[:count]
        return replace(self, asks=tuple(replace(ask, tokens=min(ask.tokens, tokens or ask.tokens)) for ask in asks))

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        asks = [{"prompt": list(ask.prompt), "tokens": ask.tokens} for ask in self.asks]
        return {"name": self.name, "words": self.words, "at_once": self.at_once, "asks": asks}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Workload:
        """The inverse of `to_dict`."""
        asks = tuple(Ask(tuple(ask["prompt"]), ask["tokens"]) for ask in data["asks"])
        return cls(data["name"], data["words"], asks, data["at_once"])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of requests, and lengths in tokens; a pair is a range with both ends in it."""

    one: tuple[int, int] = (64, 128)
    many: int = 32
    many_prompt: tuple[int, int] = (32, 256)
    many_tokens: tuple[int, int] = (16, 128)
    shared: int = 1024
    own: int = 32
    siblings: int = 16
    sibling_tokens: int = 32
    again: tuple[int, int] = (1056, 8)
    edited: int = 2048
    edits: int = 20
    edit_width: int = 8
    edit_tokens: int = 8
    burst: int = 32
    burst_prompt: tuple[int, int] = (12, 128)
    burst_tokens: tuple[int, int] = (12, 128)


FULL = Sizes()
SMALL = Sizes((8, 6), 4, (4, 16), (3, 6), 48, 4, 3, 3, (40, 3), 64, 4, 2, 2, 3, (4, 12), (3, 8))
BURST_PER_CORE = 16
MOST_BURST = 256


class Ids(Protocol):
    """Where the ids of prompts come from."""

    def __call__(self, draw: random.Random, count: int) -> list[int]:
        """`count` ids, by the given random numbers alone."""


def random_ids(vocab_size: int) -> Ids:
    """Ids without a meaning, for models without one. Both ends of the vocabulary are left out."""
    low = min(LOWEST_ID, vocab_size // 8)
    return lambda draw, count: [draw.randrange(low, vocab_size - low) for _ in range(count)]


def ids_of_text(token_ids: Sequence[int]) -> Ids:
    """Pieces of a text, from any place in it; past its end it begins again.

    Raises:
        ValueError: the text is empty.
    """
    if not token_ids:
        raise ValueError("a text without tokens gives no prompts")

    def piece(draw: random.Random, count: int) -> list[int]:
        start = draw.randrange(len(token_ids))
        return [token_ids[(start + i) % len(token_ids)] for i in range(count)]

    return piece


def scaled(sizes: Sizes, cores: int) -> Sizes:
    """The workload of nano-vllm has 256 requests of 100 to 1,024 tokens on a GPU; here 16 a core, an eighth as long."""
    return replace(sizes, burst=min(MOST_BURST, BURST_PER_CORE * max(1, cores)))


def make(name: str, ids: Ids, sizes: Sizes = FULL, repetition: int = 0) -> Workload:
    """One workload as it is in a repetition.

    Raises:
        KeyError: there is no workload of that name.
    """
    words, at_once = WORKLOADS[name]
    draw, lengths = random.Random(f"{name}/{repetition}"), random.Random(LENGTHS_SEED)
    return Workload(name, words, tuple(_asks(name, ids, sizes, draw, lengths)), at_once)


WORKLOADS: dict[str, tuple[str, bool]] = {
    "W1": ("one request", False),
    "W2": ("requests of many lengths, all at once", True),
    "W3": ("requests with a long common beginning, all at once", True),
    "W3s": ("requests with a long common beginning, one after another", False),
    "W4": ("the same long prompt twice", False),
    "W5": ("a long prompt, edited and run again at different depths", False),
    "nano": ("the workload of nano-vllm, scaled to this machine, greedy", True),
}
"""Each with what it is, and whether its requests arrive all at once."""


def edits(workload: Workload) -> list[tuple[int, int]]:
    """The requests of W5 that are edits of the one before, by place, each with the depth of its first new token."""
    pairs = enumerate(itertools.pairwise(workload.asks), 1) if workload.name == "W5" else ()
    return [
        (place, next(i for i, (a, b) in enumerate(zip(old.prompt, new.prompt, strict=True)) if a != b))
        for place, (old, new) in pairs
    ]


def _asks(name: str, ids: Ids, sizes: Sizes, draw: random.Random, lengths: random.Random) -> list[Ask]:
    if name == "W1":
        return [Ask(tuple(ids(draw, sizes.one[0])), sizes.one[1])]
    if name in ("W3", "W3s"):
        common = ids(draw, sizes.shared)
        return [Ask((*common, *ids(draw, sizes.own)), sizes.sibling_tokens) for _ in range(sizes.siblings)]
    if name == "W4":
        return [Ask(tuple(ids(draw, sizes.again[0])), sizes.again[1])] * 2
    if name == "W5":
        return _edits(ids, sizes, draw, lengths)
    count, prompt, tokens = sizes.burst, sizes.burst_prompt, sizes.burst_tokens
    if name == "W2":
        count, prompt, tokens = sizes.many, sizes.many_prompt, sizes.many_tokens
    pairs = [(lengths.randint(*prompt), lengths.randint(*tokens)) for _ in range(count)]
    return [Ask(tuple(ids(draw, long)), answer) for long, answer in pairs]


def _edits(ids: Ids, sizes: Sizes, draw: random.Random, lengths: random.Random) -> list[Ask]:
    """A prompt, and the same with some tokens replaced at a depth, again and again; depths are spread evenly."""
    text = ids(draw, sizes.edited)
    found = [Ask(tuple(text), sizes.edit_tokens)]
    room = sizes.edited - sizes.edit_width
    depths = [room * (2 * i + 1) // (2 * sizes.edits) for i in range(sizes.edits)]
    lengths.shuffle(depths)
    for depth in depths:
        new = ids(draw, sizes.edit_width)
        if new[0] == text[depth]:  # an edit changes its first token, or it would lie deeper
            new[0] = next(i for i in (text[depth - 1], *ids(draw, 64)) if i != text[depth])
        text[depth : depth + sizes.edit_width] = new
        found.append(Ask(tuple(text), sizes.edit_tokens))
    return found
