"""Builds the CPU kernels: one library for the instructions of this very machine, in a second or two, kept on disk."""

from __future__ import annotations

import functools
import platform
import shutil
import sys
from pathlib import Path

from yaie_cuda.errors import ToolMissingError
from yaie_cuda.host_build import compile_whole, content_key, kept, sources_of, version_of

HERE = Path(__file__).parent
FLAGS = (
    *("-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-fPIC", "-fvisibility=hidden"),
    *("-Wall", "-Wno-psabi", "-shared"),
)


@functools.cache
def unbuildable_reason() -> str:
    """Why the CPU kernels cannot be built on this machine, with what to install; "" when they can."""
    if not sys.platform.startswith("linux"):
        return f"the CPU kernels are built on Linux only, this is {sys.platform}"
    if shutil.which("g++") is None:
        return (
            "the CPU kernels are built by g++, which is not installed "
            "(Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"
        )
    if _openmp() is None:
        return "this build of torch does not bring GNU OpenMP, whose threads the CPU kernels share"
    return ""


def _openmp() -> Path | None:
    """The OpenMP runtime that torch computes with. A second one would bring threads of its own, in torch's way."""
    import torch

    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return found[0] if found else None


def _machine() -> str:
    """What `-march=native` depends on: a home may be shared by machines that have different instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
    first = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in reversed(lines)}
    return "\n".join([platform.machine(), *(first.get(name, "") for name in names)])


def build() -> Path:
    """The library of all CPU kernels.

    Raises:
        KernelCompileError: with the compiler's log.
        ToolMissingError: there is no compiler that works, or torch's threads cannot be shared.
        OSError: there is no place to keep it.
    """
    reason, openmp = unbuildable_reason(), _openmp()
    if reason or openmp is None:
        raise ToolMissingError(reason)
    path = shutil.which("g++") or "g++"
    version = version_of(path)
    link = [f"-L{openmp.parent}", f"-Wl,-rpath,{openmp.parent}", f"-l:{openmp.name}"]
    command = [path, *FLAGS, f"-I{HERE}", "-x", "c++", "-", "-x", "none", *link]
    texts = sources_of(HERE, "*.cpp", "*.hpp")
    key = content_key(texts, version.encode(), _machine().encode(), " ".join(command).encode())

    def make(target: Path) -> None:
        compile_whole(command, (HERE / "kernels.cpp").read_text(encoding="utf-8"), target, "the CPU kernels")

    return kept("cpu", f"kernels-{key}.so", make)
