"""How one token of a vocabulary is shown: white space and bytes as marks, special tokens as such."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from yaie_widgets.safe_text import ELLIPSIS, visible_runs

LONGEST = 64
_BYTES = re.compile("([\udc80-\udcff]+)")


class Vocabulary(Protocol):
    """What is asked of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text."""

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes that a token adds to the text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`runs` alternate: plain text, marks, plain text and so on."""

    runs: tuple[str, ...]
    special: bool = False

    @property
    def text(self) -> str:
        """All runs, marks included."""
        return "".join(self.runs)

    @property
    def ends_line(self) -> bool:
        """Whether a line break is in it."""
        return any("⏎" in mark for mark in self.runs[1::2])


def read_tokens(
    token_ids: Iterable[int], vocabulary: Vocabulary | None, known: Mapping[int, str] | None = None
) -> dict[int, Reading]:
    """The reading of each id. Without a vocabulary the texts in `known` stand in, and the id where there is none."""
    if vocabulary is not None:
        special = vocabulary.special_ids
        return {i: Reading(_runs(vocabulary.token_bytes(i) or b""), i in special) for i in set(token_ids)}
    texts = known or {}
    return {
        i: Reading(tuple(_cut(visible_runs(texts[i]))) if i in texts else ("", _mark(str(i)))) for i in set(token_ids)
    }


def _runs(raw: bytes) -> tuple[str, ...]:
    """Valid UTF-8 as text, other bytes as a mark with their hexadecimal digits."""
    runs = [""]
    for index, part in enumerate(_BYTES.split(raw[: 4 * LONGEST].decode("utf-8", "surrogateescape"))):
        found = visible_runs(part) if index % 2 == 0 else ["", _mark(part.encode("utf-8", "surrogateescape").hex(" "))]
        for place, run in enumerate(found):
            if run and place % 2 == len(runs) % 2:
                runs.append("")
            runs[-1] += run
    return tuple(_cut(runs)) if any(runs) else ("", _mark("no text"))


def _mark(words: str) -> str:
    """Words that are not text of the model, in angle quotation marks."""
    return f"\u2039{words}\u203a"


def _cut(runs: list[str]) -> list[str]:
    """At most LONGEST characters."""
    room = LONGEST
    kept: list[str] = []
    for place, run in enumerate(runs):
        if len(run) > room:
            ending = [run[:room], ELLIPSIS] if place % 2 == 0 else [run[:room] + ELLIPSIS]
            return [*kept, *ending]
        kept.append(run)
        room -= len(run)
    return kept
