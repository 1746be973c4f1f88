"""One repetition of a workload: when each answer began and ended, and the figures that follow from it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

UNSEEN = -1
"""Stands for the id of a token that was counted and not told."""


@dataclass(frozen=True, slots=True)
class Served:
    """One answer: seconds from its request to its first token and to its last, and the ids (UNSEEN where not told)."""

    ttft: float
    total: float
    token_ids: tuple[int, ...]

    @property
    def tpot(self) -> float:
        """Seconds a token, after the first."""
        return (self.total - self.ttft) / max(1, len(self.token_ids) - 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """All answers of a repetition, in the order of its requests, and the seconds of the whole."""

    wall: float
    served: tuple[Served, ...]

    @property
    def rate(self) -> float:
        """Generated tokens a second, prompts included in the time."""
        return sum(len(each.token_ids) for each in self.served) / self.wall

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        served = [{"ttft": each.ttft, "total": each.total, "token_ids": list(each.token_ids)} for each in self.served]
        return {"wall": self.wall, "served": served}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trial:
        """The inverse of `to_dict`."""
        return cls(data["wall"], tuple(Served(s["ttft"], s["total"], tuple(s["token_ids"])) for s in data["served"]))


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a trial. `less` says that less is better."""

    name: str
    words: str
    unit: str
    less: bool
    of: Callable[[Trial], float]


def _ms(seconds: float) -> float:
    return seconds * 1e3


def _ttft(served: Iterable[Served]) -> float:
    return _ms(statistics.median(each.ttft for each in served))


RATE = Figure("output_tokens_per_s", "output", "tokens/s", False, lambda trial: trial.rate)
TTFT = Figure("ttft_ms", "TTFT", "ms", True, lambda trial: _ttft(trial.served))
TPOT = Figure("tpot_ms", "TPOT", "ms", True, lambda trial: _ms(statistics.median(s.tpot for s in trial.served)))
FIRST = Figure("first_ttft_ms", "TTFT, first", "ms", True, lambda trial: _ms(trial.served[0].ttft))
LATER = Figure("later_ttft_ms", "TTFT, later", "ms", True, lambda trial: _ttft(trial.served[1:]))
COLD = Figure("cold_ttft_ms", "TTFT, cold", "ms", True, lambda trial: _ms(trial.served[0].ttft))
WARM = Figure("warm_ttft_ms", "TTFT, warm", "ms", True, lambda trial: _ms(trial.served[1].ttft))
EDIT = Figure(
    "edit_ttft_ms",
    "TTFT, mean of edits",
    "ms",
    True,
    lambda trial: _ms(statistics.fmean(each.ttft for each in trial.served[1:])),
)

FIGURES: dict[str, tuple[Figure, ...]] = {
    "W1": (TPOT, TTFT, RATE),
    "W2": (RATE, TTFT),
    "W3": (RATE, TTFT),
    "W3s": (LATER, FIRST, RATE),
    "W4": (WARM, COLD),
    "W5": (EDIT, FIRST),
    "nano": (RATE, TTFT),
}
"""Of each workload, the figure that it is about first."""


def figures(workload: str, trial: Trial) -> dict[str, float]:
    """The figures of a trial by name."""
    return {figure.name: figure.of(trial) for figure in FIGURES[workload]}
