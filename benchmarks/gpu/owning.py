"""Engines that own their weights, as those of users do: only then are gate and up joined and gated in one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from yaie_engine import LLM, loader
from yaie_engine.models.source import Source

NOWHERE = Source("made here", Path())


def from_folder(folder: Path, **settings: Any) -> LLM:
    """The way of users: a folder is read, so that its weights are the engine's alone."""
    return LLM(str(folder), **settings)


def from_nowhere(make: Callable[[], Any], **settings: Any) -> LLM:
    """An engine on a model that `make` makes and nobody else keeps.

    Not the way of users: writing 16 GB and reading them back would take longer than all that is measured. The loader
    takes a model object for the caller's; here it is told what it tells itself of the weights that it has read.
    """
    with mock.patch.object(loader, "_ready", functools.partial(loader._ready, source=NOWHERE)):
        return LLM(make(), **settings)
