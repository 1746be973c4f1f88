"""A task: something asked, and its right answer."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

HELD_ONE_IN = 8


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its right answer.

    `key` decides whether training may see it; an empty one is always seen. Where an answer may vary, `must` holds the
    words that every right one has.
    """

    kind: str
    prompt: str
    answer: str
    key: str
    must: tuple[str, ...] = ()

    @property
    def held_out(self) -> bool:
        """True when training never sees this task in any form."""
        return bool(self.key) and zlib.crc32(f"{self.kind}/{self.key}".encode()) % HELD_ONE_IN == 0

    def accepts(self, text: str) -> bool:
        """True when `text` is a right answer."""
        if self.must:
            return all(word in text for word in self.must)
        return text == self.answer


TaskMaker = Callable[[Random], Task]


def draw(maker: TaskMaker, rng: Random, *, held_out: bool) -> Task:
    """Draw from `maker` until a task of the wanted side of the split comes."""
    for _ in range(1000):
        task = maker(rng)
        if task.held_out == held_out:
            return task
    raise ValueError(f"{maker.__name__} has no task with held_out={held_out}")


def favoured(rng: Random, options: list[str], key: str, share: float = 0.75) -> str:
    """Pick from `options`, the clear favourite of `key` with probability `share`.

    A favourite in every context gives greedy decoding a wide margin and leaves sampling its variety.
    """
    if rng.random() < share:
        return options[zlib.crc32(key.encode()) % len(options)]
    return rng.choice(options)
