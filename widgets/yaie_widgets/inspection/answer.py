"""One answer to be inspected: the tokens of prompt and output with everything recorded about each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from yaie_widgets.figures import count, counted

from .reading import Reading
from .row import Candidate, Row, mean_logprob

MINUS = "\u2212"
NOT_RECORDED = "Log probabilities were not recorded. Run with --logprobs 5."


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the KV lay: the physical blocks by logical number, as far as they are known."""

    size: int
    table: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """A branch: it follows the answer numbered `parent` up to `position` of its output and takes another token there.

    `cached` of the `reused` tokens it was asked with came from the prefix cache."""

    parent: int
    position: int
    cached: int = 0
    reused: int = 0


@dataclass(frozen=True)
class Answer:
    """Plain data; `rows` run along the output, `prompt_rows` along the prompt. `reason` is None while it is written.

    `cached` counts from the first token of the prompt and may reach into the output of a branch.
    """

    name: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    cached: int = 0
    rows: tuple[Row | None, ...] | None = None
    prompt_rows: tuple[Row | None, ...] | None = None
    reason: str | None = None
    error: str = ""
    blocks: Blocks | None = None
    readings: Mapping[int, Reading] = field(default_factory=dict)
    origin: Origin | None = None
    notes: tuple[str, ...] = ()

    def token(self, position: int) -> int:
        """The id at a position of prompt and output."""
        return self.prompt[position] if position < self.start else self.output[position - self.start]

    def row(self, position: int) -> Row | None:
        """What was recorded at a position of prompt and output."""
        rows, at = (self.prompt_rows, position) if position < len(self.prompt) else (self.rows, position - self.start)
        return rows[at] if rows is not None and at < len(rows) else None

    def chosen(self, position: int) -> Candidate | None:
        """The token at a position, where its log-probability is known."""
        row = self.row(position)
        return None if row is None else row.of(self.token(position))

    @property
    def start(self) -> int:
        """The position of the first output token."""
        return len(self.prompt)

    @cached_property
    def least_likely(self) -> int | None:
        """The position of the output token with the smallest probability, the first of equals."""
        known = [(each.probability, at) for at in range(self.start, self.end) if (each := self.chosen(at)) is not None]
        return min(known)[1] if known else None

    @property
    def end(self) -> int:
        """The position after the last token."""
        return len(self.prompt) + len(self.output)

    def source(self, position: int) -> str:
        """Where the KV of a token, or the token, came from."""
        if self.origin is not None and position == self.start + self.origin.position:
            return "branch"
        if position < self.cached:
            return "cache"
        return "computed" if position < self.start else "sampled"

    # ---- in words; the live view and its twin show the same ones

    @property
    def title(self) -> str:
        """The heading."""
        return f"Tokens of {self.name}"

    @property
    def counts(self) -> str:
        """How long it is and why it ended."""
        words = f"{count(len(self.prompt))} prompt + {count(len(self.output))} output"
        return f"{words} · {self.state}"

    @property
    def state(self) -> str:
        """The finish reason, or that it is being written."""
        if self.reason == "error":
            return f"failed: {self.error}" if self.error else "failed"
        return self.reason or "decode"

    @property
    def reuse(self) -> str:
        """What a branch took from the cache; empty for an answer that is none."""
        if self.origin is None:
            return ""
        origin = self.origin
        return (
            f"branch at token {origin.position + 1}: {count(origin.cached)} of {counted(origin.reused, 'token')} cached"
        )

    @property
    def stats(self) -> str:
        """What the probabilities of the output sum up to."""
        if self.rows is None:
            return NOT_RECORDED
        mean = mean_logprob(zip(self.output, self.rows, strict=False))
        worst = self.least_likely
        if worst is None:
            return "no token yet"
        parts = [] if mean is None else [f"mean log probability {signed(mean)}", f"perplexity {math.exp(-mean):.2f}"]
        chosen = self.chosen(worst)
        shown = percent(chosen.probability) if chosen is not None else ""
        return " · ".join([*parts, f"least likely: “{self.readings[self.token(worst)].text}”, {shown}"])

    @property
    def summary(self) -> str:
        """Everything in one line."""
        cached = f"{count(min(self.cached, self.start))} of {counted(self.start, 'prompt token')} cached"
        parts = [counted(len(self.output), "token"), self.state, cached, *filter(None, [self.reuse]), self.stats]
        return " · ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The form that a live view gets. `vocab` holds [runs, special] by token id."""
        return {
            "name": self.name,
            "prompt": list(self.prompt),
            "output": list(self.output),
            "cached": self.cached,
            "rows": _rows(self.rows),
            "prompt_rows": _rows(self.prompt_rows),
            "running": self.reason is None,
            "blocks": None if self.blocks is None else {"size": self.blocks.size, "table": list(self.blocks.table)},
            "vocab": _vocab(self.readings),
            "origin": None if self.origin is None else {"parent": self.origin.parent, "position": self.origin.position},
            "least": self.least_likely,
            **self.words(),
        }

    def growth(self, known: int) -> dict[str, Any]:
        """What a view lacks that has `known` tokens of the output."""
        rows = None if self.rows is None else self.rows[known:]
        new = self.output[known:]
        ids = {*new, *(each.token_id for row in rows or () if row for each in row.candidates)}
        return {
            "from": known,
            "output": list(new),
            "rows": _rows(rows),
            "vocab": _vocab({i: self.readings[i] for i in ids}),
            "cached": self.cached,
            "least": self.least_likely,
            **self.words(),
        }

    def words(self) -> dict[str, Any]:
        """The sentences that go with it."""
        return {
            "title": self.title,
            "counts": self.counts,
            "state": self.state,
            "reuse": self.reuse,
            "stats": self.stats,
            "notes": list(self.notes),
        }


def _vocab(readings: Mapping[int, Reading]) -> dict[str, Any]:
    return {str(i): [list(reading.runs), reading.special] for i, reading in readings.items()}


def _rows(rows: tuple[Row | None, ...] | None) -> list[Any] | None:
    """[least entropy, most entropy, [[id, logprob, rank], ...]] for each position."""
    return None if rows is None else [None if row is None else _row(row) for row in rows]


def _row(row: Row) -> list[Any]:
    return [row.low, row.high, [[each.token_id, each.logprob, each.rank] for each in row.candidates]]


def percent(probability: float) -> str:
    """One decimal; what would round to nothing says so."""
    return "< 0.1 %" if probability < 0.0005 else f"{probability * 100:.1f} %"


def signed(value: float | None) -> str:
    """Two decimals with a true minus; a dash where nothing is known."""
    if value is None:
        return "—"
    return f"{MINUS if round(value, 2) < 0 else ''}{abs(value):.2f}"
