"""A server over an engine of a row's own, as its clients see it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.engine.models import save_model
from tests.server.fakes import OPEN
from yaie_engine import LLM
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer


@contextmanager
def serving(settings: dict[str, Any] | None = None, **config: Any) -> Iterator[BackgroundServer]:
    """The small random model, or `model` of the settings; both end with the block, after everybody has left."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        values = {"block_size": 4, "num_blocks": 1024, "dtype": "float32", **(settings or {})}
        model = values.pop("model", None) or str(save_model(Path(folder)))
        with LLM(model, **values) as llm:
            server = BackgroundServer(llm, ServerConfig(**{"port": 0, "access_log": "off", **config}))
            try:
                yield server
            finally:
                while OPEN:
                    OPEN.pop().close()
                server.stop()


def megabytes() -> float:
    """Resident memory of this process."""
    return psutil.Process().memory_info().rss / 2**20


def unsound(server: BackgroundServer) -> list[str]:
    """What is wrong with an engine that has nothing to do: blocks still held, or books that do not add up."""
    llm = server.llm
    llm.check()
    blocks = llm.snapshot().blocks
    whole = blocks.held == 0 and blocks.free + blocks.cached == blocks.total
    return [] if whole else [f"blocks are still held: {blocks}"]
