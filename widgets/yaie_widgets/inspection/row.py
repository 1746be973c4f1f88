"""The recorded candidates at one position, and how much they say about the entropy of the whole distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from yaie_engine.outputs import Logprob

_NOTHING = 1e-4  # a rest this small is rounding of the log-probabilities


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that was or could have been chosen. `logprob` is None for one that was impossible."""

    token_id: int
    logprob: float | None
    rank: int

    @property
    def probability(self) -> float:
        """Under the raw model, before penalties and temperature."""
        return 0.0 if self.logprob is None else math.exp(self.logprob)


@dataclass(frozen=True, slots=True)
class Row:
    """The candidates by rank. The entropy, in bits, of the full distribution lies between `low` and `high`; without
    the size of the vocabulary there is no upper bound."""

    candidates: tuple[Candidate, ...]
    low: float
    high: float | None

    def of(self, token_id: int) -> Candidate | None:
        """The candidate with that id."""
        return next((each for each in self.candidates if each.token_id == token_id), None)


def read_rows(
    recorded: Sequence[Mapping[int, Logprob] | None] | None, vocab_size: int | None
) -> tuple[Row | None, ...] | None:
    """The engine's log-probabilities as rows; None where none were recorded."""
    if recorded is None:
        return None
    return tuple(read_row(each, vocab_size) if each else None for each in recorded)


def read_row(recorded: Mapping[int, Logprob], vocab_size: int | None) -> Row:
    """One position, rounded as it is sent, so that all forms show the same figures."""
    found = (
        Candidate(token_id, round(each.logprob, 4) if math.isfinite(each.logprob) else None, each.rank)
        for token_id, each in recorded.items()
    )
    candidates = tuple(sorted(found, key=lambda each: each.rank))
    low, high = entropy_bounds(candidates, vocab_size)
    return Row(candidates, round(low, 3), None if high is None else round(high, 3))


def entropy_bounds(candidates: Sequence[Candidate], vocab_size: int | None) -> tuple[float, float | None]:
    """The least and the most that the entropy of the full distribution can be, in bits.

    The recorded part is exact. What is left of the probability is spread evenly for the upper bound. For the lower one
    it lies on as few tokens as it can: none of them is more likely than the last of an unbroken run of ranks.
    """
    known = [each.probability for each in candidates]
    rest = max(0.0, 1.0 - sum(known))
    exact = sum(map(_bits, known))
    others = None if vocab_size is None else max(0, vocab_size - len(known))
    if rest < _NOTHING or others == 0:
        return exact, exact
    unbroken = [each.probability for place, each in enumerate(candidates, 1) if each.rank == place]
    cap = min(rest, unbroken[-1]) if unbroken else rest
    low = exact + _gathered(rest, cap)
    return low, None if others is None else max(low, exact + others * _bits(rest / others))


def _gathered(rest: float, cap: float) -> float:
    """The entropy of `rest` on as few tokens as possible, none above `cap`."""
    if cap <= 0:
        return 0.0
    full = math.floor(rest / cap)
    return full * _bits(cap) + _bits(rest - full * cap)


def _bits(probability: float) -> float:
    return -probability * math.log2(probability) if probability > 0 else 0.0


def mean_logprob(rows: Iterable[tuple[int, Row | None]]) -> float | None:
    """The mean log-probability of (chosen id, row) pairs; None when nothing was recorded or a token was impossible."""
    found = [row.of(token_id) for token_id, row in rows if row is not None]
    values = [each.logprob for each in found if each is not None and each.logprob is not None]
    return sum(values) / len(values) if values and len(values) == len(found) else None
