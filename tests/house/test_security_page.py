"""SECURITY.md promises nothing that no test holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "SECURITY.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions(path: Path) -> set[str]:
    """Tests of a file, those inside of classes too."""
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def promises() -> dict[str, str]:
    """Each promise by its title."""
    part = PAGE.read_text(encoding="utf-8").split("## Promises")[1].split("\n## ")[0]
    return {text.split("**")[1]: text for text in part.split("\n- ")[1:]}


@pytest.mark.parametrize("title", promises())
def test_each_promise_names_tests_that_exist(title: str) -> None:
    named = NAMED.findall(promises()[title])
    assert named, f"{title} names no test"
    missing = [
        f"{file}::{name}" for file, name in named if not (ROOT / file).is_file() or name not in functions(ROOT / file)
    ]
    assert not missing, f"{title} {missing} are not there"


def test_every_group_of_attacks_has_its_promise() -> None:
    assert len(promises()) >= 13
    text = PAGE.read_text(encoding="utf-8").lower()
    assert all(word in text for word in ("pickle", "chat template", "cache_salt", "`host`", "key", "## reporting"))
