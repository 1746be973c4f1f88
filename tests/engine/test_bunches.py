"""Decodes in torch: rows in bunches and prefixes read once give what each row alone gives."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from yaie_cuda import reference
from yaie_cuda.paging import PrefixIndex, ReadIndex
from yaie_engine.backends import bunches as module
from yaie_engine.backends.bunches import CALL, Bunch, bunches

SIZE = 16


def tables_of(contexts: list[int], groups: dict[int, int]) -> list[list[int]]:
    """Block tables of own blocks; `groups` maps a row to the row whose first half it shares."""
    new = iter(range(10_000))
    tables = [[next(new) for _ in range(-(-context // SIZE))] for context in contexts]
    for row, other in groups.items():
        half = (min(contexts[row], contexts[other]) - 1) // SIZE // 2
        tables[row][:half] = tables[other][:half]
    return tables


def test_few_rows_are_one_bunch_and_very_different_lengths_are_not() -> None:
    assert bunches([[0], [1]], [3, 9], SIZE) == [Bunch((0, 1))]
    found = bunches(tables_of([3000, 20, 3010, 30], {}), [3000, 20, 3010, 30], SIZE)
    assert found == [Bunch((1, 3)), Bunch((0, 2))]
    assert bunches([], [5, 6], SIZE) == [Bunch((0, 1))]


def test_a_prefix_is_shared_where_it_pays() -> None:
    contexts = [4112] * 4
    tables = tables_of(contexts, {1: 0, 2: 0, 3: 0})
    assert bunches(tables, contexts, SIZE) == [Bunch((0, 1, 2, 3), 128 * SIZE)]
    assert CALL > (2 - 1) * 512  # of two rows it does not
    assert bunches(tables[:2], contexts[:2], SIZE) == [Bunch((0, 1))]


def test_every_row_is_in_one_bunch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL", 20)
    draw = random.Random(1)
    for _ in range(200):
        contexts = [draw.randint(1, 300) for _ in range(draw.randint(1, 9))]
        groups = {row: draw.randrange(row) for row in range(1, len(contexts)) if draw.random() < 0.5}
        found = bunches(tables_of(contexts, groups), contexts, SIZE)
        assert sorted(row for bunch in found for row in bunch.rows) == list(range(len(contexts)))
        for bunch in found:
            assert bunch.prefix % SIZE == 0 and all(contexts[row] > bunch.prefix for row in bunch.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value_dim", [32, 48])
@pytest.mark.parametrize("heads", [2, 6])
def test_rows_with_and_without_a_prefix(dtype: torch.dtype, value_dim: int, heads: int) -> None:
    draw = torch.Generator().manual_seed(3)
    contexts, shared, kv_heads = [40, 33, 50], 32, 2
    tables = torch.tensor([[7, 2, 4, 0], [7, 2, 9, 0], [7, 2, 5, 3]])
    keys = torch.full((10, kv_heads, SIZE, 32), torch.nan, dtype=dtype)
    values = torch.full((10, kv_heads, SIZE, value_dim), torch.nan, dtype=dtype)
    for row, context in enumerate(contexts):  # what was never written stays NaN
        for at in range(context):
            block, slot = int(tables[row, at // SIZE]), at % SIZE
            for cache in (keys, values):
                if cache[block, 0, slot, 0].isnan():
                    cache[block, :, slot] = torch.randn(kv_heads, cache.shape[3], generator=draw).to(dtype)
    query = torch.randn(3, heads, 32, generator=draw).to(dtype)
    lens = torch.tensor(contexts)
    prefix = PrefixIndex(tables[0, : shared // SIZE], SIZE)
    whole = reference.attend_rows(query, keys, values, ReadIndex(tables, lens, 1, SIZE), 0.3)
    parts = reference.attend_rows(query, keys, values, ReadIndex(tables, lens, 1, SIZE, skip=shared), 0.3, prefix)
    bound = {torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    for row, context in enumerate(contexts):
        lines = [(int(tables[row, at // SIZE]), at % SIZE) for at in range(context)]
        k = torch.stack([keys[block, :, slot] for block, slot in lines], 1).double()
        v = torch.stack([values[block, :, slot] for block, slot in lines], 1).double()
        q = query[row].double().view(kv_heads, -1, 32)
        expected = F.scaled_dot_product_attention(q, k, v, scale=0.3).reshape(heads, value_dim)
        for found in (whole[row], parts[row]):
            assert float((found.double() - expected).abs().max()) < bound


def test_float16_scores_may_leave_its_range_before_they_are_scaled() -> None:
    keys = torch.full((2, 1, 4, 128), 30.0, dtype=torch.float16)  # 128 x 30 x 30 is beyond 65,504
    values = torch.arange(8.0, dtype=torch.float16).view(2, 1, 4, 1).expand(2, 1, 4, 128).contiguous()
    index = ReadIndex(torch.tensor([[0, 1]]), torch.tensor([8]), 1, 4)
    query = torch.full((1, 2, 128), 30.0, dtype=torch.float16)
    out = reference.attend_rows(query, keys, values, index, 128**-0.5)
    assert torch.allclose(out, torch.full_like(out, 3.5))
