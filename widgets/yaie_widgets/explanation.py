"""An explanation: a title, figures in plain words, and the data behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .mode import static_mode
from .palette import notebook_style
from .safe_text import columns, escape_html, visible

# Rows and data under these names hold measured times, which static output leaves out.
TIMED = "time"


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what it is about, and what there is to say. `quote` lines hold model text."""

    name: str
    words: str
    quote: bool = False


@dataclass(frozen=True, eq=False)
class Explanation:
    """Shown as text in a terminal and as a small table in a notebook. Model text in it is escaped in both."""

    kind: str
    title: str
    rows: tuple[Row, ...]
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The title, then one line for each row."""
        width = max((columns(row.name) for row in self._shown()), default=0)
        lines = [f"  {row.name + ' ' * (width - columns(row.name))}  {visible(row.words)}" for row in self._shown()]
        return "\n".join([visible(self.title), *(line.rstrip() for line in lines)])

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data; times are left out in static mode."""
        kept = {key: value for key, value in self.data.items() if key != TIMED or not static_mode()}
        return {"kind": self.kind, "title": self.title, **kept}

    def _shown(self) -> list[Row]:
        return [row for row in self.rows if row.name.lower() != TIMED or not static_mode()]

    def __repr__(self) -> str:
        return f"<Explanation {visible(self.title)}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self._html()}

    def _html(self) -> str:
        return (
            f'<div class="yaie-drawing explanation"><style>{notebook_style()}</style>'
            f"<div><b>{escape_html(self.title)}</b></div>"
            f'<table style="border:0;border-collapse:collapse;margin:4px 0 0">{"".join(map(_html_row, self._shown()))}'
            "</table></div>"
        )


def _html_row(row: Row) -> str:
    # Inline styles: the table styles of a notebook would stripe and centre it.
    style = "text-align:left;vertical-align:top;padding:2px 18px 2px 0;border:0;font-weight:400"
    name = f'<th scope="row" style="{style};color:var(--y-ink2);white-space:pre">{escape_html(row.name)}</th>'
    words = escape_html(row.words)
    shown = f'<span class="quote">{words}</span>' if row.quote else words
    return f'<tr style="background:none">{name}<td style="{style}">{shown}</td></tr>'
