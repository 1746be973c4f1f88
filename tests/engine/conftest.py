"""One small model for all tests of the engine; engines with cheap boundaries: blocks of 4 tokens, chunks of 8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import Formula, assert_idle, swap_runner
from tests.engine.models import VOCAB, Reference, save_model
from tests.one_thread import one_thread as one_thread
from tests.poison import poisoned
from yaie_engine import LLM
from yaie_engine.runner import ModelRunner

__all__ = ["poisoned"]
Make = Callable[..., LLM]
CHEAP: dict[str, Any] = {"block_size": 4, "num_blocks": 32, "long_prefill_token_threshold": 8, "dtype": "float32"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def reference(folder: Path) -> Reference:
    return Reference(folder)


class Switch:
    """Whether engines overlap steps with host work, as they do on a device that works by itself."""

    on = False


@pytest.fixture(params=[False, True], ids=["in turn", "overlapped"])
def overlap(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways of running steps, for the engines of a test; decodes count as launched in an instant."""
    Switch.on = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRunner, "replays", lambda runner, num_decodes: num_decodes > 0)
        yield
    Switch.on = False


@pytest.fixture
def make_llm(folder: Path) -> Iterator[Make]:
    """Engines of a test's own, checked and closed when it ends."""
    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        made.append(LLM(settings.pop("model", str(folder)), **{**CHEAP, **settings}))
        made[-1]._engine.overlap = Switch.on
        return made[-1]

    yield make
    for llm in made:
        if llm.state == "ready":
            llm.check()
        llm.close()


@pytest.fixture(scope="session")
def shared_llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), **CHEAP) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM) -> Iterator[LLM]:
    """An idle engine with an empty cache. It is used again: what a test leaves running or broken shows here."""
    runner = shared_llm._engine.runner
    shared_llm._engine.overlap = Switch.on
    yield shared_llm
    shared_llm._engine.runner, shared_llm._engine.overlap = runner, False
    assert_idle(shared_llm)
    shared_llm.reset()
    blocks = shared_llm.snapshot().blocks
    assert blocks.free == blocks.total


@pytest.fixture
def formula(llm: LLM) -> Formula:
    """`llm` without its model: the answers are a formula's."""
    found = Formula(VOCAB)
    swap_runner(llm, found.runner)
    return found
