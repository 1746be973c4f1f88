"""Paged attention against a dense float64 truth, with NaN in every slot that must not be read."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.kernels.dense import Case, Problem

BOUND = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
torch.set_num_threads(1)


def decode(problem: Problem, with_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Run the decode op; every sequence has the same number of rows."""
    case = problem.case
    query = torch.stack(problem.queries)
    out = torch.full((*query.shape[:3], case.value_dim), math.nan, dtype=case.dtype)
    lse = torch.full(query.shape[:3], math.nan) if with_lse else None
    torch.ops.yaie.paged_attention_decode(
        query, problem.key_cache, problem.value_cache, problem.tables, problem.context_lens,
        problem.scale, case.window, case.softcap, problem.sinks, out, lse,
    )  # fmt: skip
    return out.flatten(0, 1), None if lse is None else lse.flatten(0, 1)


def prefill(problem: Problem, with_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Run the prefill op over the sequences laid end to end."""
    case = problem.case
    query = torch.cat(problem.queries)
    out = torch.full((*query.shape[:2], case.value_dim), math.nan, dtype=case.dtype)
    lse = torch.full(query.shape[:2], math.nan) if with_lse else None
    longest = max(rows for rows, _ in case.lens)
    torch.ops.yaie.paged_attention_prefill(
        query, problem.key_cache, problem.value_cache, problem.tables, problem.starts, problem.context_lens, longest,
        problem.scale, case.window, case.softcap, problem.sinks, out, lse,
    )  # fmt: skip
    return out, lse


def check(problem: Problem, got: tuple[Tensor, Tensor | None]) -> None:
    expected, expected_lse = problem.expected()
    out, lse = got
    assert not out.isnan().any()
    torch.testing.assert_close(out.double(), expected, atol=BOUND[problem.case.dtype], rtol=BOUND[problem.case.dtype])
    if lse is not None:
        torch.testing.assert_close(lse.double(), expected_lse, atol=4e-6, rtol=4e-6)


SHAPES = {
    "mha": {"heads": 2, "kv_heads": 2},
    "gqa": {"heads": 4, "kv_heads": 2},
    "mqa": {"heads": 3, "kv_heads": 1},
    "narrow-v": {"heads": 4, "kv_heads": 2, "key_dim": 12, "value_dim": 8},
}
FEATURES = {
    "plain": {},
    "window": {"window": 3},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": True},
    "all": {"window": 5, "softcap": 3.0, "sinks": True},
}


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_decode_equals_the_dense_truth(block_size: int, shape: str, feature: str, with_lse: bool) -> None:
    lens = ((1, 1), (1, 4), (1, 5), (1, 33))
    problem = Problem(Case(lens, block_size=block_size, **SHAPES[shape], **FEATURES[feature]))
    check(problem, decode(problem, with_lse))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("rows", [2, 5])
def test_several_query_rows_per_sequence(rows: int, feature: str) -> None:
    problem = Problem(Case(((rows, 5), (rows, 17), (rows, 8)), **FEATURES[feature]))
    check(problem, decode(problem, True))


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_prefill_equals_the_dense_truth(block_size: int, shape: str, feature: str, with_lse: bool) -> None:
    lens = ((7, 7), (1, 9), (5, 21), (1, 1), (16, 16))
    problem = Problem(Case(lens, block_size=block_size, **SHAPES[shape], **FEATURES[feature]))
    check(problem, prefill(problem, with_lse))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("feature", FEATURES)
def test_other_dtypes(dtype: torch.dtype, feature: str) -> None:
    problem = Problem(Case(((1, 40), (1, 3)), dtype=dtype, **FEATURES[feature]))
    check(problem, decode(problem, False))
    problem = Problem(Case(((6, 40), (3, 3)), dtype=dtype, **FEATURES[feature]))
    check(problem, prefill(problem, False))


@pytest.mark.parametrize("with_lse", [False, True], ids=["", "lse"])
def test_rows_that_see_nothing_give_zero(with_lse: bool) -> None:
    """An empty context (a padded sequence of a captured graph) and rows before the first position."""
    for lens in (((1, 0), (1, 6)), ((3, 0), (3, 1))):
        problem = Problem(Case(lens))
        check(problem, decode(problem, with_lse))
        check(problem, prefill(problem, with_lse))


def test_random_shapes() -> None:
    draw = torch.Generator().manual_seed(11)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=draw))

    for number in range(60):
        kv_heads, group = pick(1, 3), pick(1, 4)
        lens = tuple((rows := pick(1, 9), rows + pick(0, 40)) for _ in range(pick(1, 5)))
        case = Case(
            lens, kv_heads * group, kv_heads, 4 * pick(1, 5), 4 * pick(1, 5), 2 ** pick(0, 4),
            pick(0, 1) * pick(1, 12), pick(0, 1) * 2.5, bool(pick(0, 1)),
        )  # fmt: skip
        problem = Problem(case, number)
        check(problem, prefill(problem, bool(pick(0, 1))))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("q_len", [1, 3])
def test_no_sequences(q_len: int, feature: str) -> None:
    """An empty batch gives an empty result, by either op and with every option."""
    case = Case((), **FEATURES[feature])
    cache, sinks = torch.zeros(2, 2, 4, 16), torch.zeros(4) if case.sinks else None
    empty = torch.zeros(0, dtype=torch.int32)
    tables = torch.zeros(0, 3, dtype=torch.int32)
    for lse in (None, torch.empty(0, q_len, 4)):
        query = torch.zeros(0, q_len, 4, 16)
        options = (0.25, case.window, case.softcap, sinks, query.clone())
        torch.ops.yaie.paged_attention_decode(query, cache, cache.clone(), tables, empty, *options, lse)
    options = (0, 0.25, case.window, case.softcap, sinks, torch.zeros(0, 4, 16), torch.empty(0, 4))
    starts = torch.zeros(1, dtype=torch.int32)
    torch.ops.yaie.paged_attention_prefill(
        torch.zeros(0, 4, 16), cache, cache.clone(), tables, starts, empty, *options
    )  # fmt: skip
