"""Blocks that nobody owns hold NaN: an answer that ever reads one fails by its logits, instead of being a bit wrong."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from yaie_engine.block_pool import BlockPool
from yaie_engine.engine import LLMEngine
from yaie_engine.host_blocks import HostBlocks
from yaie_engine.kv_cache import KVCache, KVLayout
from yaie_engine.runner import ModelRunner
from yaie_engine.scheduler import Scheduler


class Poison:
    """Fills device and host blocks of all engines: when they are made, freed, and when the books start over."""

    def __init__(self) -> None:
        self.count, self.used = 0, False
        self._runners: weakref.WeakKeyDictionary[LLMEngine, ModelRunner] = weakref.WeakKeyDictionary()

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """From now on, in engines that are made from now on."""
        after(patch, LLMEngine, "__init__", self._made)
        after(patch, KVCache, "allocate", self._allocated)
        after(patch, HostBlocks, "allocate", self._allocated_there)
        after(patch, BlockPool, "free", self._freed)
        after(patch, Scheduler, "rebuild", self._rebuilt)

    def _made(self, engine: LLMEngine, *_: Any, **__: Any) -> None:
        if isinstance(engine.runner, ModelRunner):
            self._runners[engine] = engine.runner  # a test may put another one in its place

    def _allocated(self, cache: KVCache, layout: KVLayout) -> None:
        self._fill(small(tensors_of(cache)), slice(None))

    def _allocated_there(self, host: HostBlocks, layout: KVLayout) -> None:
        self._fill(small(host._tensors), slice(None))

    def _freed(self, pool: BlockPool, block: int, **_: Any) -> None:
        for engine, runner in list(self._runners.items()):
            if engine.scheduler.pool is pool:
                self._fill(tensors_of(runner.cache), block)
                self.count += 1
            elif engine.scheduler.host.pool is pool:
                self._fill(runner.host._tensors, block)

    def _rebuilt(self, scheduler: Scheduler, *_: Any, **__: Any) -> None:
        for engine, runner in list(self._runners.items()):
            if engine.scheduler is scheduler:
                self._fill([*tensors_of(runner.cache), *runner.host._tensors], slice(None))

    def _fill(self, tensors: list[torch.Tensor], which: int | slice) -> None:
        with torch.inference_mode():
            for tensor in tensors:
                tensor[which] = torch.nan


def tensors_of(cache: KVCache) -> list[torch.Tensor]:
    """K and V of every layer."""
    return [tensor for pair in cache.layers.values() for tensor in pair]


def small(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that cost little memory: of large ones a system gives only what is written."""
    return [tensor for tensor in tensors if tensor.nbytes <= 2**20]


def after(patch: pytest.MonkeyPatch, owner: type, name: str, then: Callable[..., None]) -> None:
    """Have `then` called with the arguments of a method that has returned."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def both(*args: Any, **named: Any) -> Any:
        result = function(*args, **named)
        then(*args, **named)
        return result

    patch.setattr(owner, name, both)


POISON = Poison()


@pytest.fixture(scope="session", autouse=True)
def poisoned() -> Iterator[Poison]:
    """Importing this fixture into a conftest poisons the blocks of the engines of its folder; of several, once."""
    if POISON.used:
        yield POISON
        return
    with pytest.MonkeyPatch.context() as patch:
        POISON.use(patch)
        patch.setattr(POISON, "used", True)
        yield POISON
