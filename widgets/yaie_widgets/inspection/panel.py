"""What the right panel says about one token."""

from __future__ import annotations

from dataclasses import dataclass

from yaie_widgets.figures import count

from .answer import Answer, percent, signed
from .row import Row


@dataclass(frozen=True, slots=True)
class Bar:
    """One alternative: its share of the whole, and whether it was the one chosen."""

    token_id: int
    share: float
    chosen: bool

    @property
    def shown(self) -> str:
        """The share in words."""
        return percent(self.share)


@dataclass(frozen=True, slots=True)
class Panel:
    """`place` says which token it is; `figures` are (name, value) pairs."""

    token_id: int
    place: str
    figures: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]


def panel_of(answer: Answer, position: int) -> Panel:
    """The panel of the token at a position of prompt and output."""
    token_id = answer.token(position)
    row, chosen = answer.row(position), answer.chosen(position)
    figures = [("Token id", str(token_id))]
    if row is not None and chosen is not None:
        figures += [
            ("Probability", percent(chosen.probability)),
            ("Log probability", signed(chosen.logprob)),
            ("Rank", count(chosen.rank)),
            ("Entropy", entropy_words(row)),
        ]
    figures += [
        ("Source", answer.source(position)),
        ("Position", count(position)),
        ("Block", block_words(answer, position)),
    ]
    bars = () if row is None else row.candidates
    return Panel(
        token_id,
        place_words(answer, position),
        tuple(figures),
        tuple(Bar(each.token_id, each.probability, each.token_id == token_id) for each in bars),
    )


def place_words(answer: Answer, position: int) -> str:
    """Which token of the prompt or the output it is."""
    if position < answer.start:
        return f"prompt token {count(position + 1)} of {count(answer.start)}"
    return f"token {count(position - answer.start + 1)} of {count(len(answer.output))}"


def entropy_words(row: Row) -> str:
    """The entropy of the full distribution as far as the recorded part tells it."""
    low = f"{row.low:.2f}"
    if row.high is None:
        return f"≥ {low} bits"
    high = f"{row.high:.2f}"
    return f"{low} bits" if low == high else f"{low} to {high} bits"


def block_words(answer: Answer, position: int) -> str:
    """Logical block, the physical one where it is known, and the slot in it."""
    if answer.blocks is None:
        return "—"
    if answer.reason is not None and position == answer.end - 1 and position >= answer.start:
        return "none: never computed"
    logical, slot = divmod(position, answer.blocks.size)
    table = answer.blocks.table
    physical = f" → {count(table[logical])}" if logical < len(table) else ""
    return f"{count(logical)}{physical}, slot {slot}"
