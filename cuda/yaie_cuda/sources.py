"""The CUDA text of each kernel: the built-in file, or what replaces it in this process.

Whoever compiles a kernel reads `text_of`. Whoever keeps compiled kernels compares `generation` with the one they were
made in and drops them when it differs; a running engine replaces sources between two steps, so that a step never mixes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from threading import Lock

from .kernel import SOURCES

generation = 0  # goes up with every change of a source
_replaced: dict[str, str] = {}
_lock = Lock()


@functools.cache
def built_in(name: str) -> str:
    """The text of kernels/<name>.cu. Raises FileNotFoundError where there is none."""
    return (SOURCES / f"{name}.cu").read_text(encoding="utf-8")


def text_of(name: str) -> str:
    """What kernel `name` is compiled from now."""
    return _replaced.get(name) or built_in(name)


def replaced() -> tuple[str, ...]:
    """The kernels whose source is not the built-in one, by name."""
    return tuple(sorted(_replaced))


def replace(name: str, text: str) -> None:
    """Compile kernel `name` from `text` from now on; the built-in text restores it. Thread: any."""
    global generation
    with _lock:
        if text == text_of(name):
            return
        if text == built_in(name):
            del _replaced[name]
        else:
            _replaced[name] = text
        generation += 1


def restore(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Go back to the built-in source of `names`, or of all kernels; says which were replaced. Thread: any."""
    global generation
    with _lock:
        gone = sorted(_replaced if names is None else _replaced.keys() & set(names))
        for name in gone:
            del _replaced[name]
        generation += bool(gone)
    return tuple(gone)
