"""A table of figures, as aligned text and as HTML in the style of the other views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yaie_widgets.safe_text import columns, escape_html, pad, visible

_CELL = "border:0;padding:2px 16px 2px 0;vertical-align:top;white-space:nowrap"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; figures stand at the right, words at the left."""

    title: str
    figures: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are any text; they are made visible and escaped here."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        """The heading and a line for each row."""
        cells = [[visible(cell) for cell in row] for row in (tuple(each.title for each in self.columns), *self.rows)]
        widths = [max(columns(row[place]) for row in cells) for place in range(len(self.columns))]
        return [self._line(row, widths) for row in cells]

    @property
    def html(self) -> str:
        """The same as an HTML table. Inline styles: those of a notebook would stripe and centre it."""
        head = "".join(self._cell("th", each.title, each) for each in self.columns)
        body = "".join(
            f'<tr style="background:none">{"".join(map(self._data_cell, row, self.columns))}</tr>' for row in self.rows
        )
        return (
            '<table style="border:0;border-collapse:collapse;margin:6px 0 0">'
            f'<tr style="background:none">{head}</tr>{body}</table>'
        )

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        parts = [
            " " * (width - columns(cell)) + cell if column.figures else pad(cell, width)
            for cell, width, column in zip(row, widths, self.columns, strict=True)
        ]
        return "  ".join(parts).rstrip()

    def _data_cell(self, text: str, column: Column) -> str:
        return self._cell("td", text, column)

    @staticmethod
    def _cell(tag: str, text: str, column: Column) -> str:
        side = "right" if column.figures else "left"
        own = "font-weight:400;color:var(--y-ink2)" if tag == "th" else "font-variant-numeric:tabular-nums"
        scope = ' scope="col"' if tag == "th" else ""
        return f'<{tag}{scope} style="{_CELL};text-align:{side};{own}">{escape_html(text)}</{tag}>'
