"""Text of a model or a file, safe to print: what a terminal would obey becomes visible instead."""

from __future__ import annotations

# C0 and C1 controls except newline and tab, delete, the characters that reorder or hide text, and halves of characters,
# which no terminal takes.
_HIDDEN = (
    *range(0x09),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),
    0x061C,
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_TABLE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}


def printable(text: str) -> str:
    """`text` with escape sequences, other controls and bidirectional overrides written out."""
    return text.translate(_TABLE)
