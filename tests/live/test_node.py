"""The tests of the pages' modules, run by node: one pytest test for each file in `js`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "js"
FILES = sorted(HERE.glob("*.test.mjs"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_modules(path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    done = subprocess.run([node, "--test", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout, "the file has no test"
