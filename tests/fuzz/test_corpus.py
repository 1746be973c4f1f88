"""Each kept input of each fuzz target: only declared errors, and no input takes long."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz.run import SLOWEST_S, main
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import CORPUS, TARGETS, corpus

ROOT = Path(__file__).resolve().parents[2]
INPUTS = [pytest.param(name, path, id=f"{name}-{path.name}") for name in TARGETS for path in corpus(name)]


@pytest.mark.parametrize(("name", "path"), INPUTS)
def test_an_input_does_no_harm(name: str, path: Path) -> None:
    started = time.monotonic()
    TARGETS[name](path.read_bytes())
    assert time.monotonic() - started < 2 * SLOWEST_S


def test_every_target_has_its_seeds() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS) == set(SEEDS)
    for target, named in SEEDS.items():
        for name, data in named.items():
            assert (CORPUS / target / name.replace(" ", "_")).read_bytes() == data


def test_a_replay_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(data: bytes) -> None:
        assert data != b"bad", "found"

    monkeypatch.setitem(TARGETS, "host", breaks)
    (tmp_path / "bad").write_bytes(b"bad")
    (tmp_path / "good").write_bytes(b"good")
    assert main(["host", "--replay", str(tmp_path / "good")]) == 0
    assert main(["host", "--replay", str(tmp_path / "bad")]) == 1
    assert main(["host", "--replay", str(tmp_path / "none")]) == 2
    assert main(["nothing", "--replay", str(tmp_path / "good")]) == 2
    said = capsys.readouterr()
    assert (
        "good does no harm" in said.out and "AssertionError: found" in said.err and "unknown target nothing" in said.out
    )


def test_the_replay_needs_no_fuzzer() -> None:
    code = "import sys, tests.fuzz.targets, tests.fuzz.run; sys.exit('atheris' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=120).returncode == 0
