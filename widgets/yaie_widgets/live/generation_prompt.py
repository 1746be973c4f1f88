"""The prompt of a request in pieces: what came from the cache, what was computed, and a gap in a very long one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from yaie_widgets.safe_text import visible
from yaie_widgets.tree_view import common_prefix

Decode = Callable[[Sequence[int]], str]
Piece = tuple[str, str]  # text and kind: "cached", "computed", "plain" (not known yet) or "gap"
KEPT: Final = 3_000  # characters kept at each end of a long prompt: every view and saved notebook carries them
LINE: Final = 240  # characters of one line of the short form: wider than any cell
WORD: Final = 16
_BROKEN = "\ufffd"  # what decoding puts for a character that lacks bytes
ONE_LINE: Final = 60  # a prompt of at most so many characters takes one line, a longer one two


@dataclass(frozen=True, slots=True)
class PromptView:
    """`lines` are the short form, in one or two lines without line breaks; `whole` is the text itself."""

    lines: tuple[tuple[Piece, ...], ...] = ()
    whole: tuple[Piece, ...] = ()

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> PromptView:
        """Cut to what is kept."""
        lines = tuple(tuple((visible(text), kind) for text, kind in line) for line in short_lines(pieces))
        return cls(lines, shortened(pieces))

    def to_dict(self) -> dict[str, object]:
        """JSON-able."""
        return {"lines": self.lines, "whole": self.whole}


def split_prompt(text: str, ids: Sequence[int], cached: int | None, decode: Decode | None) -> PromptView:
    """Where the cached tokens end in the text. Without a tokenizer, or before that is known, it is one piece.

    A character whose bytes lie on both sides counts as computed: it was not there as a whole.
    """
    if cached is None or (decode is None and 0 < cached < len(ids)):
        return PromptView.of(((text, "plain"),))
    cut = 0 if not cached else len(text) if cached >= len(ids) or decode is None else _cut(text, ids, cached, decode)
    return PromptView.of(((text[:cut], "cached"), (text[cut:], "computed")))


def _cut(text: str, ids: Sequence[int], cached: int, decode: Decode) -> int:
    """The ids may begin with special tokens that are not in the text: it is looked for at the end of what they say."""
    whole, head = decode(ids), decode(ids[:cached]).rstrip(_BROKEN)
    equal = len(head) if whole.startswith(head) else common_prefix(head, whole)
    start = len(whole) - len(text) if whole.endswith(text) else max(whole.find(text), 0)
    return min(max(equal - start, 0), len(text))


def shortened(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces that have text; of more than twice `KEPT` characters both ends, and how much is missing between."""
    total = sum(len(text) for text, _ in pieces)
    if total <= 2 * KEPT:
        return tuple(piece for piece in pieces if piece[0])
    gap = (f" … {total - 2 * KEPT:,} characters … ", "gap")
    return (*taken(pieces, KEPT), gap, *taken(pieces, -KEPT))


def taken(pieces: Sequence[Piece], count: int) -> tuple[Piece, ...]:
    """The first `count` characters, or the last ones of a negative count."""
    found: list[Piece] = []
    left = abs(count)
    for text, kind in pieces if count > 0 else list(reversed(pieces)):
        part = text[:left] if count > 0 else text[max(len(text) - left, 0) :]
        if left and part:
            found.append((part, kind))
            left -= len(part)
    return tuple(found if count > 0 else reversed(found))


def short_lines(pieces: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    """The short form: one line, or the head of the prompt and its tail. What does not fit is cut by the page."""
    total = sum(len(text) for text, _ in pieces)
    if total <= ONE_LINE:
        return [taken(pieces, total)] if total else []
    head = min(LINE, (total + 1) // 2)
    if total <= 2 * LINE:  # nothing is left out: the break is better after a word
        space = "".join(text for text, _ in pieces).rfind(" ", head - WORD, head + WORD)
        head = space + 1 if 0 <= space < LINE else head
    return [taken(pieces, head), taken(pieces, -min(LINE, total - head))]
