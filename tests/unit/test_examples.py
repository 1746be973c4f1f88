"""What is saved in the example notebooks is the same on every machine: no output names a folder of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.ipynb"))
# "/a/b" where a path begins, but not the routes of a server; "C:\\a"; what the tempfile module calls its files.
OF_A_MACHINE = re.compile(
    r"(?<![\w<>./:)-])/(?!v1/)[\w.-]+/[\w.-]+|\b[A-Z]:\\\w|~/\w|\btmp[a-z0-9_]{8}\b|\bsite-packages\b"
)


def texts(value: Any) -> Iterator[str]:
    """Every text in a piece of JSON, keys left out; lines of one text are joined."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        yield "".join(value)
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_there_are_examples_with_outputs() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_saved_output_names_a_folder_of_a_machine(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert outputs
    assert [found.group() for text in texts(outputs) for found in OF_A_MACHINE.finditer(text)] == []


@pytest.mark.parametrize(
    "text", ["in /tmp/tmp0_dw0ce7", "'/home/me/a.py'", "=/root/x", "C:\\Users", "~/models", "tmpab12cd_x", "(/opt/a)"]
)
def test_such_a_name_is_seen(text: str) -> None:
    assert OF_A_MACHINE.search(text)


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:1/v1/models", "POST /v1/completions", "</g></svg>", "12 tok/s/step"]
)
def test_other_words_with_strokes_are_not(text: str) -> None:
    assert not OF_A_MACHINE.search(text)
