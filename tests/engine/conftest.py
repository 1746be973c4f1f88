"""One small model for all tests of the engine; engines with cheap boundaries: blocks of 4 tokens, chunks of 8."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.models import Reference, save_model
from yaie_engine import LLM

Make = Callable[..., LLM]
CHEAP: dict[str, Any] = {"block_size": 4, "num_blocks": 32, "long_prefill_token_threshold": 8, "dtype": "float32"}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture
def make_llm(folder: Path) -> Iterator[Make]:
    """Engines that are checked and closed when the test ends."""
    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        made.append(LLM(settings.pop("model", str(folder)), **{**CHEAP, **settings}))
        return made[-1]

    yield make
    for llm in made:
        if llm.state == "ready":
            llm.check()
        llm.close()
    gc.collect()


@pytest.fixture
def llm(make_llm: Make) -> LLM:
    return make_llm()
