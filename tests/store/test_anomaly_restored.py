"""Anomaly mode over prefixes that came from the store: clean ones answer as ever, damage is named and read again."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.fakes import LONG
from tests.store.conftest import GREEDY, Open, ask, tokens
from tests.store.test_restore import ASK, PREFIX, saved
from yaie_cuda.cpu import build
from yaie_engine import LLM
from yaie_engine.errors import AnomalyError

KERNELS = pytest.param(
    "cpu", marks=pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
)


def spoil(llm: LLM, position: int) -> None:
    """NaN in K of the second layer, at a position of the restored prefix."""
    runner, size = llm._engine.runner, llm._scheduler.pool.block_size

    def work() -> None:
        hit = llm._scheduler.tree.match(PREFIX)
        block = hit.blocks[position // size]
        with torch.inference_mode():
            runner.cache.layers[1][0][block, :, position % size] = math.nan  # type: ignore[attr-defined]

    llm._engine.call(work)


@pytest.mark.parametrize("backend", ["reference", KERNELS])
def test_what_was_restored_is_watched_like_what_was_computed(open_llm: Open, backend: str) -> None:
    cold = saved(open_llm)
    llm = open_llm(attention_backend=backend)
    assert llm.snapshot().model.attention_backend == backend
    llm.detect_anomaly()
    output = ask(llm, ASK)
    assert (tokens(output), output.num_cached_tokens, output.metrics.reuse) == (cold, len(PREFIX), "store")
    spoil(llm, 21)
    bad = llm.submit(ASK, GREEDY).result(LONG)
    assert isinstance(bad.error, AnomalyError) and bad.error.in_cache and bad.error.request_id == bad.request_id
    assert "K of position 21 (block " in str(bad.error) and "is damaged in the KV cache" in str(bad.error)
    again = ask(llm, ASK)
    assert tokens(again) == cold and again.metrics.reuse in ("none", "store"), "nothing of the damage is left"
    assert tokens(ask(llm, PREFIX)) == tokens(ask(llm, PREFIX))
