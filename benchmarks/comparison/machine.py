"""On what a comparison ran."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

from yaie_magic.bench.cores import usable_cores

from .native import cpu_flags
from .worker import ROOT

TELLING = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimddp", "bf16", "i8mm", "sve")


def facts() -> dict[str, Any]:
    """CPU, cores, memory, Python, commit."""
    flags = cpu_flags()
    return {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "features": [flag for flag in TELLING if flag in flags],
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
    }


def cpu_name(path: Path = Path("/proc/cpuinfo")) -> str:
    """As the system calls it."""
    text = path.read_text() if path.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def commit() -> str:
    """Of this checkout, with a plus when something in it was changed; "" where git does not know."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
