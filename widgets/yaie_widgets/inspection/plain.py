"""An inspected answer for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_widgets.safe_text import columns, pad

from .answer import Answer, percent
from .panel import entropy_words, place_words

SHOWN = 5
_WIDTH = 16


def plain_text(answer: Answer) -> str:
    """The figures in one line, then the output tokens that were least to be expected with what else was likely."""
    return "\n".join([f"{answer.title} · {answer.summary}", *_surprises(answer), *answer.notes])


def _surprises(answer: Answer) -> Iterator[str]:
    known = [(each.probability, at) for at in range(answer.start, answer.end) if (each := answer.chosen(at))]
    for probability, position in sorted(known)[:SHOWN]:
        row = answer.row(position)
        chosen = answer.token(position)
        others = [each for each in row.candidates if each.token_id != chosen] if row else []
        said = ", ".join(
            f"{answer.readings[each.token_id].text} {percent(each.probability)}" for each in others[:SHOWN]
        )
        text = answer.readings[chosen].text
        shown = pad(text, _WIDTH) if columns(text) <= _WIDTH else text
        figures = f"{percent(probability):>8}  {entropy_words(row) if row else '':<20}"
        yield f"  {place_words(answer, position):<20} {shown} {figures} {said}".rstrip()
