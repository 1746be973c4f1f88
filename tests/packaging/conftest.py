"""One wheel and one environment that holds only that wheel, built once per run."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "yaie_magic": ROOT / "yaie_magic",
    "yaie_engine": ROOT / "engine" / "yaie_engine",
    "yaie_cuda": ROOT / "cuda" / "yaie_cuda",
    "yaie_widgets": ROOT / "widgets" / "yaie_widgets",
}
Runner = Callable[..., "subprocess.CompletedProcess[str]"]


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command with its output kept, away from any model hub."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if check and done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def wheel_files(wheel: Path) -> set[str]:
    """Names of the files in the wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="session")
def wheel_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel installed and nothing of this checkout on its path.

    The dependencies come from the running environment through a path file. Such a file does not run the path files
    of the folder it names, so the editable install of this checkout stays out.
    """
    folder = tmp_path_factory.mktemp("wheel-only") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=ROOT)
    return python


@pytest.fixture
def in_wheel_only(wheel_python: Path, tmp_path: Path) -> Runner:
    """Runs a program of the wheel-only environment (`python`, `yaie`, ...) in an empty folder."""

    def runner(program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run(wheel_python.parent / program, *arguments, cwd=tmp_path, check=check)

    return runner
