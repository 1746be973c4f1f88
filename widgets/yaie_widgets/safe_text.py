"""Model text made fit to show: every character visible, nothing that steers a terminal, a label or a browser."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator

ELLIPSIS = "…"
_NAMED = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
# Letters, marks and symbols that print as nothing, so that text could hide in them.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_MAX_MARKS = 3


def visible(text: str) -> str:
    """`text` on one line, with a visible mark for each control, bidi, zero-width or unprintable character."""
    return "".join(shown for _, shown in _characters(text))


def visible_runs(text: str) -> list[str]:
    """`visible(text)` with spaces as raised dots, in runs: first plain text, then marks, then plain text and so on."""
    runs = [""]
    for char, shown in _characters(text):
        shown = "·" if char == " " else shown
        if (shown != char) != (len(runs) % 2 == 0):
            runs.append("")
        runs[-1] += shown
    return runs


def _characters(text: str) -> Iterator[tuple[str, str]]:
    """Each character and what stands for it."""
    marks = 0
    for char in text:
        combining = unicodedata.category(char) in ("Mn", "Me")
        marks = marks + 1 if combining else 0
        yield char, _code(char) if marks > _MAX_MARKS else _visible_char(char)


def _visible_char(char: str) -> str:
    if " " <= char <= "~":
        return char
    if char in _NAMED:
        return _NAMED[char]
    if char < " ":
        return chr(0x2400 + ord(char))
    return _code(char) if _unprintable(char) else char


def _unprintable(char: str) -> bool:
    point = ord(char)
    return (
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        or char in _BLANK
        or 0xFDD0 <= point <= 0xFDEF
        or point & 0xFFFE == 0xFFFE
    )


def _code(char: str) -> str:
    return f"\u2039U+{ord(char):04X}\u203a"


def columns(text: str) -> int:
    """Terminal columns that `text` takes (wide East Asian characters and emoji take two, combining marks none)."""
    return sum(_char_columns(char) for char in text)


def _char_columns(char: str) -> int:
    if char < "\u0300":
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def shorten(text: str, limit: int) -> str:
    """`text` made visible and cut in the middle to at most `limit` columns: head and tail both say something.

    The head gets the larger part, since prefixes are told apart by how they begin.
    """
    # A long text costs no more than what can be shown of it: one character shows as at least one mark.
    ends = 4 * limit + 8
    cut = len(text) > 2 * ends
    shown = visible(text[:ends] + text[-ends:] if cut else text)
    if not cut and columns(shown) <= limit:
        return shown
    room = max(limit - 1, 0)
    tail = room // 3
    return _head(shown, room - tail) + ELLIPSIS + _head(shown[::-1], tail)[::-1]


def excerpt(text: str, limit: int) -> str:
    """`text` shortened, with a mark for spaces at its ends."""
    return mark_edges(shorten(text, limit)) or "(no text)"


def mark_edges(shown: str) -> str:
    """Spaces at the ends of a text, where they could not be seen, as raised dots."""
    inner = shown.strip(" ")
    before = len(shown) - len(shown.lstrip(" ")) if inner else len(shown)
    return "·" * before + inner + "·" * (len(shown) - len(inner) - before)


def _head(text: str, limit: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _char_columns(char)
        if used > limit:
            return text[:index]
    return text


def pad(text: str, width: int) -> str:
    """`text` filled with spaces to `width` columns."""
    return text + " " * (width - columns(text))


def escape_text(text: str) -> str:
    """`text` as it is, escaped for HTML, in elements and in quoted attributes, on one line of the markup."""
    return on_one_line(html.escape(text, quote=True))


def on_one_line(markup: str) -> str:
    """Markup with its newlines as references: the same to a browser.

    A blank line would end the HTML in a notebook that becomes Markdown, and what follows would be read as Markdown.
    """
    return markup.replace("\r", "&#13;").replace("\n", "&#10;")


def escape_html(text: str) -> str:
    """`text` made visible and escaped for HTML, in elements and in quoted attributes."""
    return escape_text(visible(text))


def escape_label(text: str) -> str:
    """`text` made visible and escaped for a Graphviz HTML-like label, where `\\N` and its like are expanded too."""
    return escape_html(text).replace("\\", "\\\\")
