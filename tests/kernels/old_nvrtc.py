"""The oldest NVRTC that pyproject.toml allows, beside the environment: build/nvrtc-13.0, without what it needs.

`install` fetches it (90 MB); run as a program with the path of its library, it compiles the CI set with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "nvrtc-13.0"
WANTED = "nvidia-cuda-nvrtc>=13.0,<13.1"
ARCH = "sm_90"
MOST_SECONDS = 240


def library() -> Path | None:
    """The library in the folder, if it is there."""
    return next(iter(sorted(FOLDER.glob("nvidia/*/lib/libnvrtc.so.13"))), None)


def install() -> str:
    """Fill the folder, unless it is full. Why it could not be; "" when it is."""
    if library() is not None:
        return ""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--retries=1"]
    command = [*pip, "--no-compile", "--only-binary=:all:", "--upgrade", "--target", str(FOLDER), WANTED]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"pip did not get {WANTED} within {MOST_SECONDS} s"
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"pip cannot get {WANTED} (offline?): {said}"
    return "" if library() is not None else f"{WANTED} has no libnvrtc.so.13"


def compiled(cache: Path) -> dict[str, Any]:
    """What a process of its own compiles with it: "version", and "reports" of [name, ok, registers, spills, log]."""
    path = library()
    assert path is not None
    environment = {**os.environ, "LD_LIBRARY_PATH": str(path.parent), "YAIE_CACHE_DIR": str(cache)}
    command = [sys.executable, __file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(path: str) -> None:
    """Load the library before anything loads another one, compile, and print what came of it."""
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    from yaie_cuda.catalog import ci_specialisations
    from yaie_cuda.compiler import compile_all, nvrtc_version

    reports = compile_all((one, ARCH) for one in ci_specialisations())
    print(
        json.dumps(
            {
                "version": nvrtc_version(),
                "reports": [[one.name, one.ok, one.registers, one.spill_bytes, one.log] for one in reports],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
