"""Where two prompts part: the token, and the text on both sides of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from yaie_engine.record import RequestRecord

from .safe_text import ELLIPSIS, mark_edges, visible
from .tree_view import common_prefix

Decode = Callable[[Sequence[int]], str]
_BEFORE, _AFTER = 32, 40


@dataclass(frozen=True, slots=True)
class Split:
    """`tokens` are equal from the start; `before` is the text that ends there, `this` and `other` what follows.

    `answer_tokens` of the equal ones lie in the previous request's answer: its conversation goes on.
    """

    tokens: int
    answer_tokens: int
    before: str
    this: str
    other: str


def find_split(record: RequestRecord, previous: RequestRecord, decode: Decode | None = None) -> Split:
    """Compare `record`'s prompt with what `previous` was asked and, where that goes on, with what it answered."""
    mine = record.prompt_token_ids
    answer = previous.output_token_ids[0] if previous.output_token_ids else ()
    theirs = previous.prompt_token_ids + answer
    equal = common_prefix(mine, theirs)
    # An answer counts as shared only when the new prompt really runs into it.
    answered = max(equal - len(previous.prompt_token_ids), 0)
    if not answered:
        theirs = previous.prompt_token_ids
    before, this, other = _texts(record, previous, mine, theirs, equal, decode)
    return Split(equal, answered, before, this, other)


def _texts(
    record: RequestRecord,
    previous: RequestRecord,
    mine: Sequence[int],
    theirs: Sequence[int],
    equal: int,
    decode: Decode | None,
) -> tuple[str, str, str]:
    if decode is not None:
        start = max(equal - _BEFORE, 0)
        pieces = decode(mine[start:equal]), decode(mine[equal : equal + _AFTER]), decode(theirs[equal : equal + _AFTER])
        return _tail(pieces[0]), _head(pieces[1]), _head(pieces[2])
    if record.prompt is not None and previous.prompt is not None:
        # Without a tokenizer the split is shown where the characters part, which is inside the first unequal token.
        other = previous.prompt + (previous.texts[0] if len(theirs) > len(previous.prompt_token_ids) else "")
        at = common_prefix(record.prompt, other)
        return _tail(record.prompt[:at]), _head(record.prompt[at:]), _head(other[at:])
    return _ids(mine[max(equal - 4, 0) : equal]), _ids(mine[equal : equal + 4]), _ids(theirs[equal : equal + 4])


def _ids(tokens: Sequence[int]) -> str:
    return f"token ids {' '.join(map(str, tokens))}" if tokens else ""


def _tail(text: str) -> str:
    shown = mark_edges(visible(text[-_BEFORE:]))
    return ELLIPSIS + shown if len(text) > _BEFORE else shown


def _head(text: str) -> str:
    shown = mark_edges(visible(text[:_AFTER]))
    return shown + ELLIPSIS if len(text) > _AFTER else shown
