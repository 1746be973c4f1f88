"""Builds of the emulator that were kept: what is damaged on disk is built anew, what cannot be loaded says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.small_kernels import SCALE, SCALE_KERNEL, scale
from yaie_cuda import host_build
from yaie_cuda.emulator import build
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import EmulatorError, KernelCompileError
from yaie_cuda.host_build import is_whole

pytestmark = [
    pytest.mark.timeout(280),
    pytest.mark.skipif(bool(build.emulator_reason()), reason="the emulator is built by g++"),
]
DAMAGES = ("empty", "short", "half", "cut", "longer", "changed", "no digest")


def damaged(data: bytes, how: str) -> bytes:
    """What may be left of a file."""
    return {
        "empty": b"",
        "short": data[:200],
        "half": data[: len(data) // 2],
        "cut": data[:-1],
        "longer": data + b"\0",
        "changed": data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :],
        "no digest": data[: -host_build.DIGEST_BYTES],
    }[how]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path))
    return tmp_path / "emulator"


def launch(sanitizer: Any = "") -> None:
    """Build and run a kernel in a launcher that loaded none before."""
    launcher = EmulatorLauncher(Options(sanitizer=sanitizer), {"scale": SCALE})
    x, y = torch.ones(8), torch.zeros(8)
    launcher.watch(x, y)
    launcher.launch(scale(), (1, 1, 1), SCALE_KERNEL.params(input=x.data_ptr(), out=y.data_ptr(), count=8, factor=3.0))
    assert y.tolist() == [3.0] * 8


@pytest.mark.parametrize(("sanitizer", "damages"), [("", DAMAGES), ("address", DAMAGES[2:3])])
def test_a_damaged_build_is_made_anew_and_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sanitizer: str, damages: tuple[str, ...]
) -> None:
    launch(sanitizer)
    made: list[str] = []
    run = build.compile_whole

    def counted(command: list[str], text: str, target: Path, label: str) -> None:
        made.append(target.name)
        run(command, text, target, label)

    monkeypatch.setattr(build, "compile_whole", counted)
    (path,) = folder.glob("scale-*")
    whole = path.read_bytes()
    for how in damages:
        # A new file: the old one may be loaded in this process, and to write to it would change running code.
        path.unlink()
        path.write_bytes(damaged(whole, how))
        launch(sanitizer)
        assert is_whole(path), how
        launch(sanitizer)
    assert made == [path.name] * len(damages)


def test_a_damaged_runtime_is_made_anew_and_replaced(folder: Path) -> None:
    path = build._runtime("")
    path.write_bytes(b"")
    launch()
    assert is_whole(path)


def test_a_build_that_no_loader_takes_is_an_error_of_the_emulator(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "build", lambda *_: tmp_path / "text.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(EmulatorError, match=r"^scale: its library cannot be loaded: .*text\.so"):
        launch()
    with pytest.raises(EmulatorError, match=r"^scale: its program cannot be run: .*text\.so"):
        launch("address")


def test_a_name_that_nothing_defines_is_an_error_of_the_build_and_nothing_is_kept(folder: Path) -> None:
    source = SCALE.replace("struct Params", "__device__ float nowhere(float);\nstruct Params", 1)
    source = source.replace("p.factor *", "nowhere(p.factor) *")
    with pytest.raises(KernelCompileError, match="nowhere"):
        build.build(scale(), source=source)
    assert not list(folder.glob("scale-*"))
