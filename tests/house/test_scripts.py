"""The scripts that a newcomer runs, before anything is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "basename", "cat", "cut", "dirname", "grep", "sed", "env")


def load(name: str) -> ModuleType:
    """A module of scripts/house, which is no package."""
    spec = importlib.util.spec_from_file_location(f"house_{name}", ROOT / "scripts" / "house" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bare_checkout(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The scripts in a folder without an environment, and a PATH with the shell's tools but no Python."""
    checkout, tools = tmp_path / "check out", tmp_path / "bin"
    shutil.copytree(ROOT / "scripts", checkout / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return checkout, {"PATH": str(tools), "HOME": str(tmp_path)}


def run(*command: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", ["quickstart", "test", "lint"])
def test_without_python_one_line_says_what_to_install(script: str, bare_checkout: tuple[Path, dict[str, str]]) -> None:
    checkout, environment = bare_checkout
    done = run(checkout / "scripts" / script, environment=environment)
    assert done.returncode == 1
    assert done.stderr == (
        f"{script}: Python 3.11 or 3.12 (with venv and pip) was not found on PATH; install one and try again\n"
    )
    assert not (checkout / ".venv").exists()


def test_too_old_python_is_passed_over(bare_checkout: tuple[Path, dict[str, str]]) -> None:
    checkout, environment = bare_checkout
    old = Path(environment["PATH"]) / "python3"
    old.write_text("#!/usr/bin/env bash\nexit 1\n")
    old.chmod(0o755)
    assert "was not found" in run(checkout / "scripts" / "size", environment=environment).stderr


@pytest.mark.parametrize(("script", "option", "hint"), [("quickstart", "--labb", "--lab"), ("lint", "--fixx", "--fix")])
def test_unknown_option_is_exit_2(script: str, option: str, hint: str) -> None:
    done = run(ROOT / "scripts" / script, option, environment=dict(os.environ))
    assert done.returncode == 2
    assert option in done.stderr.splitlines()[-1] and hint in done.stderr


def test_help_of_quickstart() -> None:
    done = run(ROOT / "scripts" / "quickstart", "--help")
    assert done.returncode == 0 and "--lab" in done.stdout


def test_size_names_what_is_over_budget() -> None:
    size = load("size")
    files = [
        size.SourceFile("engine/yaie_engine/scheduler.py", 401, (("short", 60),)),
        size.SourceFile("engine/yaie_engine/engine.py", 400, (("long", 61),)),
        size.SourceFile("engine/yaie_engine/radix_tree/nodes.py", 400, ()),
        size.SourceFile("engine/yaie_engine/block_pool.py", 300, ()),
    ]
    assert size.overruns(files) == [
        "engine/yaie_engine/scheduler.py: 401 lines, budget 400",
        "engine/yaie_engine/engine.py: long() has 61 lines, budget 60",
        "engine core: 1501 lines, budget 1500",
    ]


def test_size_counts_nested_functions() -> None:
    size = load("size")
    assert size.functions_of("def a():\n    def b():\n        pass\n    return b\n") == (("a", 4), ("b", 2))


def test_structure_page_takes_first_sentences(tmp_path: Path) -> None:
    structure = load("structure")
    path = tmp_path / "m.py"
    path.write_text('"""One noun: a | b. More\nwords.\n\nSecond paragraph.\n"""\n')
    assert structure.summary(path) == "One noun: a \\| b"
    page = structure.page_with_tables(f"head\n{structure.BEGIN}\nold\n{structure.END}\ntail\n")
    assert page.startswith("head\n") and page.endswith("\ntail\n") and "\nold\n" not in page
    assert structure.page_with_tables(page) == page
