"""Engines over one small model and a store of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import CHEAP
from tests.engine.models import save_model
from tests.one_thread import one_thread as one_thread
from tests.poison import poisoned as poisoned
from yaie_engine import LLM, RequestOutput, SamplingParams

Open = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def open_llm(folder: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens engines over the store of the test; each is checked at the end."""
    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        store = settings.pop("prefix_store", str(tmp_path / "store"))
        made.append(LLM(settings.pop("model", str(folder)), **{**CHEAP, "prefix_store": store, **settings}))
        return made[-1]

    yield make
    for llm in made:
        if llm.state == "ready":
            llm.check()
            blocks = llm.snapshot().blocks
            assert blocks.held == 0 and blocks.free + blocks.cached == blocks.total
        llm.close()


def ask(llm: LLM, prompt: Any, params: SamplingParams = GREEDY) -> RequestOutput:
    output = llm.generate([prompt], params, use_tqdm=False)[0]
    assert output.error is None
    return output


def tokens(output: RequestOutput) -> tuple[int, ...]:
    return output.outputs[0].token_ids
