"""Writing to the paged cache and copying its blocks."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reshape_and_cache_writes_its_slots_and_no_other(dtype: torch.dtype) -> None:
    key, value = torch.randn(6, 2, 8).to(dtype), torch.randn(6, 2, 4).to(dtype)
    key_cache = torch.full((5, 2, 4, 8), math.nan).to(dtype)
    value_cache = torch.full((5, 2, 4, 4), math.nan).to(dtype)
    slots = [19, -1, 0, 7, -1, 8]
    torch.ops.yaie.reshape_and_cache(key, value, key_cache, value_cache, torch.tensor(slots))
    for states, cache in ((key, key_cache), (value, value_cache)):
        expected = torch.full_like(cache, math.nan)
        for token, slot in enumerate(slots):
            if slot >= 0:
                expected[slot // 4, :, slot % 4] = states[token]
        torch.testing.assert_close(cache, expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("slots", [[], [-1, -1]])
def test_nothing_to_write(slots: list[int]) -> None:
    cache = torch.full((2, 2, 4, 8), math.nan)
    states = torch.randn(len(slots), 2, 8)
    torch.ops.yaie.reshape_and_cache(states, states, cache, cache.clone(), torch.tensor(slots, dtype=torch.int64))
    assert cache.isnan().all()


def test_copy_blocks_copies_in_every_layer() -> None:
    keys = [torch.randn(6, 2, 4, 8) for _ in range(3)]
    values = [torch.randn(6, 2, 4, 4) for _ in range(3)]
    before = [cache.clone() for cache in (*keys, *values)]
    torch.ops.yaie.copy_blocks(keys, values, torch.tensor([[0, 3], [0, 4], [5, 1]]))
    for cache, old in zip((*keys, *values), before, strict=True):
        old[3], old[4], old[1] = old[0], old[0], old[5]
        torch.testing.assert_close(cache, old, rtol=0, atol=0)


def test_copying_no_block_is_allowed() -> None:
    cache = torch.randn(2, 1, 4, 8)
    torch.ops.yaie.copy_blocks([cache], [cache.clone()], torch.empty(0, 2, dtype=torch.int64))


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, yaie_cuda; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("tokens", "key_dim", "value_dim"), [(0, 8, 8), (3, 8, 0), (0, 8, 0), (3, 0, 8)])
def test_writes_of_nothing(tokens: int, key_dim: int, value_dim: int) -> None:
    key, value = torch.ones(tokens, 2, key_dim), torch.ones(tokens, 2, value_dim)
    caches = torch.zeros(2, 2, 4, key_dim), torch.zeros(2, 2, 4, value_dim)
    torch.ops.yaie.reshape_and_cache(key, value, *caches, torch.arange(tokens))
    assert [int(cache.sum()) for cache in caches] == [2 * tokens * key_dim, 2 * tokens * value_dim]
