"""Patterns are ours: no text of a request, a model or a server is ever compiled as a regular expression."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("engine/yaie_engine", "cuda/yaie_cuda", "widgets/yaie_widgets", "yaie_magic")
CALLS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def foreign_patterns(code: str) -> list[int]:
    """The lines that compile a pattern which is no constant. Constants of a module and `re.escape` are allowed."""
    tree = ast.parse(code)
    constants = {target.id for node in tree.body for target in _targets(node) if isinstance(target, ast.Name)}

    def fixed(node: ast.expr) -> bool:
        match node:
            case ast.Constant():
                return True
            case ast.JoinedStr():
                return all(fixed(part) for part in node.values)
            case ast.FormattedValue():
                return fixed(node.value)
            case ast.BinOp():
                return fixed(node.left) and fixed(node.right)
            case ast.Name():
                return node.id in constants
            case ast.Attribute(value=ast.Name(id=name), attr="pattern"):
                return name in constants
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="escape")):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[inner]):
                return fixed(inner)
            case ast.Call(func=ast.Name(id="map"), args=[ast.Attribute(value=ast.Name(id="re"), attr="escape"), _]):
                return True
        return False

    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
            on_module = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            if on_module and node.args and not fixed(node.args[0]):
                found.append(node.lineno)
    return found


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [
            each for target in node.targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def test_every_pattern_is_a_constant_of_ours() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 300
    found = {str(path.relative_to(ROOT)): lines for path in paths if (lines := foreign_patterns(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import re\nX = 'a'\nre.compile(f'{X}b')\nre.match(X + 'c', text)", []),
        ("import re\nre.compile(re.escape(text) + '$')\nre.sub('|'.join(map(re.escape, texts)), '', t)", []),
        ("import re\nre.compile(text)", [2]),
        ("import re\ndef f(stop):\n    return re.search(f'({stop})', 'x')", [3]),
        ("import re\nre.split('|'.join(stops), text)", [2]),
    ],
)
def test_the_search_finds_what_it_looks_for(code: str, lines: list[int]) -> None:
    assert foreign_patterns(code) == lines
