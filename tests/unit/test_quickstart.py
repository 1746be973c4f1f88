"""What `scripts/quickstart` prints while the notebook runs: every cell begins after an empty line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

HOUSE = Path(__file__).resolve().parents[2] / "scripts" / "house"


@pytest.mark.parametrize("text", ["no break at the end", "a break\n"])
def test_a_cell_begins_after_an_empty_line(text: str, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(HOUSE))
    from quickstart import StreamingClient

    first, second = nbformat.v4.new_code_cell("1"), nbformat.v4.new_markdown_cell("words")
    client = StreamingClient(nbformat.v4.new_notebook(cells=[first, second]))
    parts: list[tuple[str, dict[str, Any]]] = [
        ("stream", {"name": "stdout", "text": text}),
        ("execute_result", {"data": {"text/plain": "'result'"}, "metadata": {}, "execution_count": 1}),
        ("stream", {"name": "stdout", "text": text}),
    ]
    client.clear_before_next_output = False
    for kind, content in parts:
        message = {"msg_type": kind, "content": content, "header": {"msg_type": kind}, "parent_header": {}}
        client.process_message(message, first, 0)
    client.announce(second, 1)
    line = text.rstrip("\n")
    assert capsys.readouterr().out == f"{line}\n'result'\n{line}\n\nwords\n"
