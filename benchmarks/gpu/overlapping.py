"""Engines with host work behind running steps, and in turn with them. On a GPU the first is the default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def overlap(llm: Any, on: bool) -> Iterator[None]:
    """The engine's steps one way or the other within the block."""
    engine = llm._engine
    before = engine.overlap
    engine.call(lambda: setattr(engine, "overlap", on))
    try:
        yield
    finally:
        engine.call(lambda: setattr(engine, "overlap", before))
