"""Graphviz HTML-like labels from escaped pieces: the only place where such markup is put together.

Graphviz stretches the columns of a nested table to fill its cell, so every line here has a known width and ends with a
filler: figures stay where they were put, and all nodes of a rank are equally wide.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .palette import LIGHT
from .safe_text import columns, escape_label

MONO = "Courier"
SANS = "Helvetica"
BOLD = "Helvetica-Bold"
# Layout measures Helvetica; the reader's interface font may be as wide as this many ems per character.
_WIDEST = {False: 0.6, True: 0.68}


class Piece(NamedTuple):
    """A table cell and the width that it takes."""

    markup: str
    width: int


def text(content: str, size: int, role: str = "ink", *, mono: bool = False, bold: bool = False) -> str:
    """A run of text in one font. `content` may hold anything."""
    if not content:
        return ""  # Graphviz takes an empty FONT element for a syntax error.
    # A bold face by name: Graphviz sets text in a B element two pixels higher than its neighbours.
    face = MONO if mono else BOLD if bold else SANS
    return f'<FONT FACE="{face}" POINT-SIZE="{size}" COLOR="{LIGHT[role]}">{escape_label(content)}</FONT>'


def cell(content: str = "", **attributes: str | int) -> str:
    """A table cell around ready markup; attribute names are Graphviz's, in lower case."""
    return f"<TD{_attributes({'align': 'LEFT', **attributes})}>{content}</TD>"


def figure(
    content: str, size: int, role: str = "ink", *, bold: bool = False, width: int = 0, align: str = "LEFT"
) -> Piece:
    """Proportional text in a cell that fits the widest interface font."""
    needed = math.ceil(columns(content) * size * _WIDEST[bold])
    return Piece(cell(text(content, size, role, bold=bold), width=max(needed, width), align=align), max(needed, width))


def mono(content: str, size: int, width: int, role: str = "ink") -> Piece:
    """Text of at most `width`; the cell is fixed, since layout takes each byte of a wide character for a column."""
    # The line break says "left": a line that seems too long to the layout must not be centred over the cell.
    content = text(content, size, role, mono=True) + ('<BR ALIGN="LEFT"/>' if content else "")
    fixed = cell(content, fixedsize="TRUE", width=width, height=round(size * 1.34))
    return Piece(fixed, width)


def gap(width: int) -> Piece:
    """Empty space."""
    return Piece(cell(width=width), width)


def block(role: str, width: int, height: int) -> Piece:
    """A filled rectangle in the colour of `role`; free is hollow."""
    outline = {"border": 1, "color": LIGHT["free"]} if role == "free" else {"bgcolor": LIGHT[role]}
    return Piece(cell(fixedsize="TRUE", width=width, height=height, **outline), width)


def swatch(role: str) -> Piece:
    """A small square for a legend."""
    square = table(row(block(role, 12, 12).markup))
    return Piece(cell(square, width=12, fixedsize="TRUE", height=12), 12)


def line(width: int, *pieces: Piece) -> str:
    """Pieces side by side in a table of `width`."""
    rest = width - sum(piece.width for piece in pieces)
    filled = [*pieces, gap(rest)] if rest > 0 else pieces
    return table(row(*(piece.markup for piece in filled)))


def lines(*each: str) -> str:
    """Tables or spacers one below the other; an int-like string is markup already."""
    return table(*(row(cell(one)) for one in each))


def spacer(height: int) -> str:
    """A line without content."""
    return table(row(cell(height=height)))


def row(*cells: str) -> str:
    """A table row."""
    return f"<TR>{''.join(cells)}</TR>"


def table(*rows: str, **attributes: str | int) -> str:
    """A table without frame or gaps unless `attributes` say so."""
    plain: dict[str, str | int] = {"border": 0, "cellborder": 0, "cellspacing": 0, "cellpadding": 0}
    return f"<TABLE{_attributes({**plain, **attributes})}>{''.join(rows)}</TABLE>"


def label(markup: str) -> str:
    """Markup as the value of a Graphviz `label` attribute."""
    return f"<{markup}>"


def totals(width: int, *pairs: tuple[str, str]) -> str:
    """A row of totals: small caption above, figure below."""
    captions: list[Piece] = []
    values: list[Piece] = []
    for name, value in pairs:
        slot = max(figure(name, 11).width, figure(value, 14).width) + 20
        captions.append(figure(name, 11, "ink2", width=slot))
        values.append(figure(value, 14, width=slot))
    return lines(line(width, *captions), spacer(2), line(width, *values))


def legend(width: int, *entries: tuple[str, str]) -> str:
    """Swatches with their words, on one line."""
    pieces = [part for role, word in entries for part in (swatch(role), gap(6), figure(word, 11, "ink2"), gap(8))]
    return line(width, *pieces)


def _attributes(attributes: dict[str, str | int]) -> str:
    return "".join(f' {name.upper()}="{value}"' for name, value in attributes.items())
