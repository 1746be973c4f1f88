"""The module list in docs/structure.md, from the first line of each docstring. `--check` changes nothing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "structure.md"
PACKAGES = ("yaie_magic", "widgets/yaie_widgets", "engine/yaie_engine", "cuda/yaie_cuda")
BEGIN, END = "<!-- modules: begin (written by scripts/lint --fix) -->", "<!-- modules: end -->"


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring, as far as its first sentence."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return (paragraph if end < 0 else paragraph[:end]).rstrip(".:").replace("|", "\\|")


def table(folder: str) -> str:
    """The modules of one package."""
    root = ROOT / folder
    paths = sorted(path for path in root.rglob("*.py") if path.name != "__init__.py")
    rows = [f"| `{path.relative_to(root).as_posix()}` | {summary(path)} |" for path in paths]
    return "\n".join(
        [f"### `{root.name}`", summary(root / "__init__.py") + ".", "", "| module | |", "|---|---|", *rows]
    )


def page_with_tables(text: str) -> str:
    """The page with the part between the markers replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    tables = "\n\n".join(table(folder) for folder in PACKAGES)
    return f"{head}{BEGIN}\n{tables}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Write the page, or say that it is stale."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = page_with_tables(text)
    if "--check" not in arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print("docs/structure.md is stale: run scripts/lint --fix", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
