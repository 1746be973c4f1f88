"""Errors at the fault points of the engine, and at chosen call sites where it names none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from yaie_engine.fault_points import armed

KINDS: list[type[BaseException]] = [ValueError, MemoryError, torch.OutOfMemoryError, KeyboardInterrupt]


class Fault:
    """Raises `kind` at the `at`-th call that `when` accepts, then never again."""

    def __init__(self, kind: type[BaseException], at: int = 1, when: Callable[..., bool] | None = None) -> None:
        self.kind, self.at, self.when = kind, at, when
        self.calls = 0
        self.raised = threading.Event()

    def check(self, *args: Any, **kwargs: Any) -> None:
        if self.when is not None and not self.when(*args, **kwargs):
            return
        self.calls += 1
        if self.calls == self.at:
            self.raised.set()
            raise self.kind("planted")

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` with the fault in front of it."""

        def faulty(*args: Any, **kwargs: Any) -> Any:
            self.check(*args, **kwargs)
            return function(*args, **kwargs)

        return faulty


@contextmanager
def at_point(name: str, fault: Fault) -> Iterator[Fault]:
    """Arm a fault point; what `when` gets is the point's context."""
    with armed(name, fault.check):
        yield fault


@contextmanager
def planted(owner: Any, name: str, fault: Fault) -> Iterator[Fault]:
    """Put the fault before `owner.name` (a class or an object)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fault.before(getattr(owner, name)))
        yield fault
