"""The harness of notebook pages, without a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Dialogs:
    """A page on which a dialog is open so many times, and everything that is looked for on it."""

    def __init__(self, count: float) -> None:
        self.left, self.closed = count, 0
        self.last = self

    def locator(self, _: str) -> Dialogs:
        return self

    def count(self) -> int:
        return int(self.left > 0)

    def inner_text(self, timeout: float) -> str:
        return "Restart Kernel?\nYes"

    def click(self, timeout: float) -> None:
        self.left -= 1
        self.closed += 1

    def wait_for(self, state: str, timeout: float) -> None:
        """It is gone at once."""


def test_dialogs_that_come_back_without_end_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("playwright")
    monkeypatch.syspath_prepend(ROOT / "scripts" / "house")
    from lab_page import MOST_DIALOGS, PlaywrightTimeout, answer_dialogs

    page: Any = Dialogs(3)
    assert answer_dialogs(page) == ["Restart Kernel? / Yes"] * 3 and not page.count()
    again: Any = Dialogs(float("inf"))
    with pytest.raises(PlaywrightTimeout, match="a dialog comes back: Restart Kernel"):
        answer_dialogs(again)
    assert again.closed == MOST_DIALOGS
    assert capsys.readouterr().err.count("answered a dialog") == 3 + MOST_DIALOGS
