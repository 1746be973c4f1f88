"""What cannot be seen is marked in the same way by a live view and by its static twin."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest

from tests.widgets.payloads import PAYLOADS
from yaie_widgets.safe_text import visible

PROGRAM = Path(__file__).parent / "js" / "visible.mjs"
SEQUENCES = [
    "👩\u200d👩\u200d👧 🏳️\u200d🌈 👩🏽\u200d🚀",
    "a\u200db \u200d🎉 🎉\u200d 🎉\u200da",
    "e\u0301\u0301\u0301\u0301\u0301 o\u0308x",
    "one\ntwo\tthree\r\n\x00\x7f",
]


def in_a_page(texts: list[str]) -> list[str]:
    """The texts as `visibleLine` shows them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on PATH (Debian: apt-get install nodejs)")
    done = subprocess.run([node, str(PROGRAM)], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_every_character_and_many_texts_are_shown_alike() -> None:
    points = (point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF)
    known = [chr(point) for point in points if unicodedata.category(chr(point)) not in ("Cn", "Co")]
    texts = [*known, *SEQUENCES, *map(str, PAYLOADS)]
    shown = in_a_page(texts)
    assert [(text, page) for text, page in zip(texts, shown, strict=True) if page != visible(text)] == []
