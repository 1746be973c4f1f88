"""clang-tidy over every kernel, as the emulator builds one specialisation of it, and over the emulator's runtime."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from yaie_cuda.catalog import ci_specialisations
from yaie_cuda.emulator.build import HERE
from yaie_cuda.kernel import SOURCES

TIDY = Path(sysconfig.get_path("scripts")) / "clang-tidy"
FLAGS = ("-xc++", "-std=c++20", f"-I{SOURCES}", f"-I{HERE}", "-Wno-unknown-pragmas")


def complaints(path: Path, macros: tuple[tuple[str, str], ...]) -> str:
    """What clang-tidy has against one source; "" when nothing."""
    command = [str(TIDY), "--quiet", str(path), "--", *FLAGS, *(f"-D{name}={value}" for name, value in macros)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def main() -> int:
    """Print every complaint; 1 when there is one."""
    macros = {HERE / "runtime.cpp": ()} | {one.kernel.path: one.macros for one in reversed(ci_specialisations())}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [text for text in pool.map(complaints, macros, macros.values()) if text]
    print("\n".join(found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
