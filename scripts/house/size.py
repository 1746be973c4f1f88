"""Sizes of files, functions and the engine core, against their budgets."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("yaie_magic", "engine", "cuda", "widgets", "scripts", "tests", "benchmarks", "typings")
SUFFIXES = (".py", ".pyi", ".cu", ".cuh", ".cpp", ".hpp", ".js", ".css", ".sh")
FILE_BUDGET = 400
FUNCTION_BUDGET = 60
CORE = ("sequence", "block_pool", "radix_tree", "scheduler", "engine")
CORE_BUDGET = 1500


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its lines, and the lines of each function in it."""

    path: str
    lines: int
    functions: tuple[tuple[str, int], ...]

    @property
    def part(self) -> str:
        """The folder that the table groups by."""
        return self.path.split("/", 1)[0]


def tracked_files() -> list[str]:
    """Paths that git knows or would add; every file on disk where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return sorted(path for path in listed if path.split("/", 1)[0] in PARTS and (ROOT / path).is_file())


def is_source(path: str) -> bool:
    """Source by suffix, or a script without one."""
    name = Path(path)
    return name.suffix in SUFFIXES or (name.suffix == "" and path.startswith("scripts/"))


def functions_of(text: str) -> tuple[tuple[str, int], ...]:
    """Name and number of lines of every function, nested ones included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return tuple((node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in found)


def read(path: str) -> SourceFile:
    """Measure one file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    functions = functions_of(text) if path.endswith(".py") else ()
    return SourceFile(path, len(text.splitlines()), functions)


def core_lines(files: list[SourceFile]) -> int:
    """Lines of the engine core: the modules named in CORE, packages of that name included."""
    prefix = "engine/yaie_engine/"
    names = [file.path.removeprefix(prefix) for file in files]
    return sum(
        file.lines
        for file, name in zip(files, names, strict=True)
        if file.path.startswith(prefix) and name.split("/")[0].removesuffix(".py") in CORE
    )


def print_table(files: list[SourceFile]) -> None:
    """One line a folder: files, lines, the median file and the longest file and function."""
    print(f"{'folder':<12}{'files':>6}{'lines':>8}{'median':>8}{'longest':>9}{'function':>10}")
    for part in PARTS:
        group = [file for file in files if file.part == part]
        if group:
            lines = sorted(file.lines for file in group)
            longest = max((size for file in group for _, size in file.functions), default=0)
            print(f"{part:<12}{len(group):>6}{sum(lines):>8}{lines[len(lines) // 2]:>8}{lines[-1]:>9}{longest:>10}")
    print(f"engine core ({', '.join(CORE)}): {core_lines(files)} of {CORE_BUDGET} lines")


def overruns(files: list[SourceFile]) -> list[str]:
    """What is over budget, one sentence each."""
    found = [f"{f.path}: {f.lines} lines, budget {FILE_BUDGET}" for f in files if f.lines > FILE_BUDGET]
    found += [
        f"{file.path}: {name}() has {size} lines, budget {FUNCTION_BUDGET}"
        for file in files
        for name, size in file.functions
        if size > FUNCTION_BUDGET
    ]
    if core_lines(files) > CORE_BUDGET:
        found.append(f"engine core: {core_lines(files)} lines, budget {CORE_BUDGET}")
    return found


def main() -> int:
    """Print the table; 1 when something is over its budget."""
    files = [read(path) for path in tracked_files() if is_source(path)]
    print_table(files)
    problems = overruns(files)
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
