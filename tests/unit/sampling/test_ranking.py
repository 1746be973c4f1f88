"""Order of equal logits."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_engine.ranking import best_of, ordered_topk, rank_of, waitless_topk


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_order_is_value_then_id(row: list[int], k: int) -> None:
    scores = torch.tensor([row, row[::-1]], dtype=torch.float32)
    values, ids = ordered_topk(scores, k)
    for line, got_values, got_ids in zip(scores.tolist(), values.tolist(), ids.tolist(), strict=True):
        expected = sorted(range(len(line)), key=lambda i: (-line[i], i))[:k]
        assert got_ids == expected
        assert got_values == [line[i] for i in expected]
    if k <= len(row):
        assert all(map(torch.equal, waitless_topk(scores, k), (values, ids)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1.5, -1.5, -torch.inf, torch.inf]), min_size=3))
def test_every_float_has_its_place_without_waiting(row: list[float]) -> None:
    scores = torch.tensor([row], dtype=torch.float32)
    assert all(map(torch.equal, waitless_topk(scores, len(row)), ordered_topk(scores, len(row))))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_rank_is_the_place_in_that_order(row: list[int]) -> None:
    scores = torch.tensor([row] * len(row), dtype=torch.float32)
    _, ids = ordered_topk(scores[:1], len(row))
    ranks = rank_of(scores, torch.arange(len(row))).tolist()
    assert ranks == [ids[0].tolist().index(i) + 1 for i in range(len(row))]


def test_masked_entries_come_last() -> None:
    scores = torch.full((1, 300), -torch.inf)
    scores[0, 200] = 1.0
    values, ids = ordered_topk(scores, 3)
    assert ids.tolist() == [[200, 0, 1]]
    assert values[0, 0] == 1.0


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, -torch.inf, torch.inf, torch.nan]), min_size=1, max_size=40),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_the_best_is_the_first_of_the_largest_and_nan_is_the_largest(row: list[float], dtype: torch.dtype) -> None:
    wide = torch.tensor([[*row, 9.0]] * 21, dtype=dtype)  # more rows than are widened at a time
    values, ids = best_of(wide[:, :-1])  # rows that lie apart, as where padding is cut off
    numbers = [math.inf if math.isnan(each) else each for each in row]
    nans = [i for i, each in enumerate(row) if math.isnan(each)]
    assert ids.tolist() == [nans[0] if nans else numbers.index(max(numbers))] * 21
    assert values.dtype == dtype and (bool(values.isnan().all()) if nans else values.tolist() == [max(row)] * 21)
