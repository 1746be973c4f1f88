"""The worker threads that OpenMP keeps for each thread which has computed something, given back when it is done.

GNU OpenMP counts them: with more than there are cores it no longer spins at its barriers but sleeps, which costs a
decode step on two cores a quarter of its time. So the thread that loaded a model, or one that ran other torch work
before it asks, must not keep its workers while the engine's thread computes. They come back by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from functools import cache
from pathlib import Path

_SOFT = 1  # omp_pause_soft of the OpenMP 5.0 API: what the program set stays


def release_workers() -> None:
    """End the idle OpenMP workers of the calling thread; nothing happens where there are none, or no GNU OpenMP."""
    if "torch" in sys.modules:
        for library in _libraries():
            library.omp_pause_resource_all(_SOFT)


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """Every GNU OpenMP that is loaded by now: torch brings its own, NumPy's libraries may bring another."""
    maps = Path("/proc/self/maps")
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux: other runtimes do not count like that
        return ()
    paths = sorted({line.split(maxsplit=5)[5] for line in lines if "libgomp" in line})
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # replaced on disk since: the engine computes all the same
            found += [ctypes.CDLL(path)] if Path(path).is_file() else []
    return tuple(library for library in found if hasattr(library, "omp_pause_resource_all"))
