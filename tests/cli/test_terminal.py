"""Hostile text of a model on a terminal."""

from __future__ import annotations

import pytest

from yaie_magic.terminal import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🙂\n\ttext", "plain é 漢 🙂\n\ttext"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten\x08", "over\\x0dwritten\\x08"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
    ],
)
def test_controls_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown
