"""Kernels that are the torch references behind the kernels' signatures: to test what is built around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pytest

from yaie_cuda import attention, cache, cascade, reference
from yaie_engine.backends import choose
from yaie_engine.backends.kernels import Kernels

REFERENCES = {**vars(reference), **vars(cascade), **vars(cache), **vars(attention)}


class NoLauncher:
    """Stands where a launcher stands; nothing is ever launched."""

    name, multiprocessors, max_shared_bytes = "standin", 1, 0

    def warm_up(self, *_: object) -> None:
        """Nothing to compile."""


def standin_kernels(calls: Counter[str] | None = None) -> Kernels:
    """The references, counted in `calls`."""
    counts: Counter[str] = Counter() if calls is None else calls

    def counted(name: str) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            counts[name] += 1
            REFERENCES[name](*arguments)

        return run

    return Kernels(NoLauncher(), **{op.name: counted(op.name) for op in fields(Kernels)[1:]})


@contextmanager
def standin(kernels: Kernels) -> Iterator[None]:
    """Within the block the emulated backend runs `kernels`, in any layout and dtype."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "make_launcher", lambda *_: None)
        patch.setattr(Kernels, "on", classmethod(lambda *_: kernels))
        patch.setattr(choose, "dtype_reason", lambda *_: "")
        patch.setattr(choose, "config_reason", lambda *_: "")
        patch.setattr("yaie_engine.tiers.kernel_check.layout_reason", lambda *_: "")
        yield
