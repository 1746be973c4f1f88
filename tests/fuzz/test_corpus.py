"""Each kept input of each fuzz target: only declared errors, and no input takes long."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fuzz import run
from tests.fuzz.run import SLOWEST_S, main
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import CORPUS, TARGETS, Target, corpus

ROOT = Path(__file__).resolve().parents[2]
INPUTS = [pytest.param(name, path, id=f"{name}-{path.name}") for name in TARGETS for path in corpus(name)]


def roomy() -> float:
    """Megabytes: what this process has and some more; a copy of it begins with as much."""
    return psutil.Process().memory_info().rss / 2**20 + 100


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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(data: bytes) -> None:
        assert data != b"bad", "found"
        if data == b"gone":
            raise FileNotFoundError("found it gone")

    monkeypatch.setitem(TARGETS, "host", breaks)
    monkeypatch.setattr(run, "MOST_MB", roomy())
    for name in ("bad", "good", "gone"):
        (tmp_path / name).write_bytes(name.encode())
    assert main(["host", "--replay", str(tmp_path / "gone")]) == 1, "an error of the target is not one of the file"
    assert main(["host", "--replay", str(tmp_path / "good")]) == 0
    assert main(["host", "--replay", str(tmp_path / "bad")]) == 1
    assert main(["host", "--replay", str(tmp_path / "none")]) == 2
    assert main(["nothing", "--replay", str(tmp_path / "good")]) == 2
    said = capfd.readouterr()
    assert (
        "good does no harm" in said.out and "AssertionError: found" in said.err and "unknown target nothing" in said.out
    )


def _hangs(_: bytes) -> None:
    while True:
        pass


def _hangs_in_c(_: bytes) -> None:
    re.match("(z|zz)+$", "z" * 60 + "b")


def _eats(_: bytes) -> None:
    kept = []
    while True:
        kept.append(bytearray(b"x") * 2**20)


def _ate(_: bytes) -> None:
    """Quicker than anybody looks, and given back."""
    bytearray(b"x") * (400 * 2**20)


def _crashes(_: bytes) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _panics(_: bytes) -> None:
    raise BaseException("a panic")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (_hangs, "it hangs: no end after 0.3 s"),
        (_hangs_in_c, "it hangs: no end after 0.3 s"),
        (_eats, "it needs more than"),
        (_ate, "it needs more than"),
        (_crashes, "it ended the process by SIGTERM"),
        (_panics, "it breaks a promise"),
        (lambda _: os._exit(7), "it ended the process with 7"),
    ],
)
def test_a_replay_has_the_bounds_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], target: Target, told: str
) -> None:
    """What the fuzzer found in time or memory is found again, and nothing of it goes on."""
    monkeypatch.setitem(TARGETS, "host", target)
    monkeypatch.setattr(run, "MOST_MB", roomy())
    monkeypatch.setattr(run, "SLOWEST_S", 0.3 if "hangs" in told else 30)
    (tmp_path / "input").write_bytes(b"")
    before = psutil.Process().children()
    assert main(["host", "--replay", str(tmp_path / "input")]) == 1
    assert f"input does harm: {told}" in capfd.readouterr().out and psutil.Process().children() == before


def test_the_replay_needs_no_fuzzer() -> None:
    code = "import sys, tests.fuzz.targets, tests.fuzz.run; sys.exit('atheris' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=120).returncode == 0
