"""Cells run in a plain shell."""

from __future__ import annotations

from typing import Any

import pytest


class Run:
    """Runs cells and keeps what they printed."""

    def __init__(self, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell, self.capsys = shell, capsys
        self.result: Any = None
        self.error: BaseException | None = None
        self.out = self.err = ""

    def __call__(self, code: str) -> Run:
        self.capsys.readouterr()
        found = self.shell.run_cell(code, store_history=True)
        self.result, self.error = found.result, found.error_in_exec or found.error_before_exec
        self.out, self.err = self.capsys.readouterr()
        return self

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


def ok(run: Run, code: str) -> Run:
    """Run a cell that must succeed."""
    run(code)
    assert run.error is None, (code, run.error)
    return run
