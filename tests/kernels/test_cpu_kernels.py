"""The CPU kernels against the torch reference in float64, in random shapes, between guard words."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from yaie_cuda import reference
from yaie_cuda.checks import UnservedError
from yaie_cuda.cpu.build import unbuildable_reason
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_cuda.cpu.library import library
from yaie_cuda.paging import RaggedIndex, ReadIndex, Scratch
from yaie_engine.ranking import best_of

pytestmark = pytest.mark.skipif(bool(unbuildable_reason()), reason=unbuildable_reason())
DTYPES = (torch.float32, torch.bfloat16)
BOUND = {torch.float32: 3e-6, torch.bfloat16: 4e-3}
"""Root mean square of the error over that of the float64 result."""
GUARD = 77.0


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    return CpuKernels()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def guarded(*shape: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A tensor of NaN between guard words, and all of its memory."""
    count = torch.Size(shape).numel()
    memory = torch.full((count + 128,), GUARD, dtype=dtype)
    inner = memory[64 : 64 + count].fill_(torch.nan)
    return inner.view(shape), memory


def intact(memory: Tensor) -> bool:
    return bool((memory[:64] == GUARD).all() and (memory[-64:] == GUARD).all())


def error(found: Tensor, expected: Tensor) -> float:
    size = expected.double().square().mean().sqrt().clamp_min(1e-30)
    return float(((found.double() - expected.double()).square().mean().sqrt() / size).nan_to_num(nan=torch.inf))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [16, 48, 768, 4096])
@pytest.mark.parametrize("rows", [0, 1, 7, 90])
def test_norm_and_sum(kernels: CpuKernels, rows: int, hidden: int, dtype: torch.dtype) -> None:
    wide = torch.randn(rows, 2 * hidden).to(dtype)
    rows_in, weight, residual = wide[:, :hidden], torch.randn(hidden).to(dtype), torch.randn(rows, hidden).to(dtype)
    for added in (None, residual):
        out, memory = guarded(rows, hidden, dtype=dtype)
        expected, total = torch.empty_like(out), None if added is None else added.clone()
        reference.rms_norm(rows_in, weight, 1e-6, total, expected)
        kernels.rms_norm(rows_in, weight, 1e-6, added, out)
        # Another last bit of the root may round the normed value and its product with the weight the other way.
        torch.testing.assert_close(out, expected, rtol=2e-6 if dtype == torch.float32 else 2**-6, atol=1e-6)
        assert added is None or (total is not None and torch.equal(added, total))
        assert intact(memory)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), [(0, 32), (7, 48), (40, 1040)])
def test_norms_that_round_once(kernels: CpuKernels, rows: int, hidden: int, dtype: torch.dtype) -> None:
    """Those of OLMo 2 and Gemma, by the classes of transformers; the last bit of the root may differ."""
    states = torch.randn(rows, hidden).mul(torch.logspace(-2, 2, rows).unsqueeze(1) if rows else 1).to(dtype)
    for kind, kernel in ((Olmo2RMSNorm, kernels.rms_norm_wide), (GemmaRMSNorm, kernels.rms_norm_one_plus)):
        module, residual = kind(hidden, 1e-6).to(dtype), torch.randn(rows, hidden).to(dtype)
        module.weight.data = torch.randn(hidden).to(dtype)
        for added in (None, residual):
            out, memory = guarded(rows, hidden, dtype=dtype)
            expected = module(states if added is None else added + states)
            kernel(states, module.weight, 1e-6, added, out)
            torch.testing.assert_close(out, expected, rtol=3e-6 if dtype == torch.float32 else 2**-7, atol=1e-6)
            assert intact(memory)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(0, 32), (1, 16), (5, 2048), (40, 1040)])
def test_gate_of_gelu(kernels: CpuKernels, rows: int, width: int, dtype: torch.dtype) -> None:
    both = torch.randn(rows, 2 * width).mul(8).to(dtype)
    if rows:
        both[0, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, -200.0])
    out, memory = guarded(rows, width, dtype=dtype)
    gate, up = both.chunk(2, -1)
    expected = torch.nn.functional.gelu(gate, approximate="tanh") * up
    kernels.gelu_tanh_and_mul(both, out)
    torch.testing.assert_close(out, expected, rtol=1e-5 if dtype == torch.float32 else 8e-3, atol=1e-5, equal_nan=True)
    assert intact(memory)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(0, 32), (1, 16), (5, 2048), (40, 1040)])
def test_gate(kernels: CpuKernels, rows: int, width: int, dtype: torch.dtype) -> None:
    both = torch.randn(rows, 2 * width).mul(8).to(dtype)
    if rows:
        both[0, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, -200.0])
    out, memory = guarded(rows, width, dtype=dtype)
    expected = torch.empty_like(out)
    reference.silu_and_mul(both, expected)
    kernels.silu_and_mul(both, out)
    torch.testing.assert_close(out, expected, rtol=1e-5 if dtype == torch.float32 else 8e-3, atol=1e-6, equal_nan=True)
    assert intact(memory)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("table_dtype", DTYPES)
@pytest.mark.parametrize(("dim", "rotary_dim"), [(64, 64), (64, 32), (80, 20), (16, 2), (128, 128)])
def test_rotation(kernels: CpuKernels, dim: int, rotary_dim: int, dtype: torch.dtype, table_dtype: torch.dtype) -> None:
    """To the bit in bfloat16; query and key are slices of one joint projection."""
    if dtype == torch.float32 and table_dtype == torch.bfloat16:
        with pytest.raises(UnservedError):
            states, table = torch.zeros(3, 1, dim), torch.zeros(3, rotary_dim, dtype=torch.bfloat16)
            kernels.rotary_embedding(states, states, table, table, None)
        return
    joint = torch.randn(9, 5 * dim).to(dtype)
    query, key = joint[:, : 3 * dim].view(9, 3, dim), joint[:, 3 * dim : 4 * dim].view(9, 1, dim)
    rest = joint[:, 4 * dim :].clone()
    cos, sin = torch.randn(20, rotary_dim).to(table_dtype), torch.randn(20, rotary_dim).to(table_dtype)
    positions = torch.randint(20, (9,))
    expected = [reference.rotate(states, cos[positions], sin[positions]) for states in (query, key)]
    kernels.rotary_embedding(query, key, cos, sin, positions)
    for found, want in zip((query, key), expected, strict=True):
        torch.testing.assert_close(found, want, rtol=0 if dtype == torch.bfloat16 else 1e-6, atol=1e-6)
    assert torch.equal(joint[:, 4 * dim :], rest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_write(kernels: CpuKernels, dtype: torch.dtype) -> None:
    """Every slot but -1 gets its row, no other is touched."""
    key, value = torch.randn(6, 2, 32).to(dtype), torch.randn(6, 2, 48).to(dtype)
    slots = torch.tensor([3, -1, 40, 7, -1, 0])
    caches = [guarded(6, 2, 8, dim, dtype=dtype) for dim in (32, 48)]
    expected = [cache.clone() for cache, _ in caches]
    for i, slot in enumerate(slots.tolist()):
        if slot >= 0:
            for cache, states in zip(expected, (key, value), strict=True):
                cache[slot // 8, :, slot % 8] = states[i]
    kernels.reshape_and_cache(key, value, caches[0][0], caches[1][0], slots)
    for (cache, memory), want in zip(caches, expected, strict=True):
        torch.testing.assert_close(cache, want, rtol=0, atol=0, equal_nan=True)
        assert intact(memory)


def attention_case(draw: random.Random, dtype: torch.dtype, chunks: bool = False) -> dict[str, Any]:
    """Sequences whose blocks lie anywhere; every slot that no sequence may see is NaN. One row each, or some."""
    kv_heads, group, size = draw.choice([1, 2, 4]), draw.choice([1, 2, 3, 5, 8]), draw.choice([1, 4, 16, 32])
    key_dim = draw.choice([16, 64, 80, 128])
    value_dim = draw.choice([key_dim, 48])
    contexts = [draw.choice([0, 1, 2, 17, 63, 64, 65, 300, 900]) for _ in range(draw.randint(1, 6))]
    tokens = [draw.choice([2, 7, 64, 193]) if chunks else 1 for _ in contexts]
    if chunks:
        contexts = [context + count for context, count in zip(contexts, tokens, strict=True)]
    window = draw.choice([0, 0, 1, 20, 100])
    widths = [-(-context // size) for context in contexts]
    order = list(range(sum(widths) + 3))
    draw.shuffle(order)
    tables = torch.zeros(len(contexts), max(1, *widths), dtype=torch.int32)
    keys = torch.full((len(order), kv_heads, size, key_dim), torch.nan, dtype=dtype)
    values = torch.full((len(order), kv_heads, size, value_dim), torch.nan, dtype=dtype)
    for row, (context, count, width) in enumerate(zip(contexts, tokens, widths, strict=True)):
        mine = [order.pop() for _ in range(width)]
        tables[row, :width] = torch.tensor(mine, dtype=torch.int32)
        first = max(0, context - count + 1 - window) if window else 0
        for position in range(first, context):
            block, offset = mine[position // size], position % size
            keys[block, :, offset] = torch.randn(kv_heads, key_dim).to(dtype)
            values[block, :, offset] = torch.randn(kv_heads, value_dim).to(dtype)
    heads = kv_heads * group
    joint = torch.randn(sum(tokens), heads * key_dim + 64).to(dtype)
    starts = torch.tensor([0, *itertools.accumulate(tokens)], dtype=torch.int32)
    return ({"starts": starts} if chunks else {}) | {
        "query": joint[:, : heads * key_dim].view(len(joint), heads, key_dim),
        "key_cache": keys,
        "value_cache": values,
        "block_tables": tables,
        "context_lens": torch.tensor(contexts, dtype=torch.int32),
        "scale": draw.choice([0.125, 1.0]),
        "sliding_window": window,
        "softcap": draw.choice([0.0, 0.0, 4.0]),
        "sinks": draw.choice([None, torch.randn(heads), torch.randn(heads).to(dtype)]),
    }


def exact(case: dict[str, Any]) -> Tensor:
    """The reference in float64."""
    lens, query = case["context_lens"], case["query"]
    if "starts" in case:
        return exact_chunks(case)
    index = ReadIndex(case["block_tables"], lens, 1, case["key_cache"].shape[2], case["sliding_window"])
    sinks = None if case["sinks"] is None else case["sinks"].double()
    wide = query.double().unsqueeze(1), case["key_cache"].double(), case["value_cache"].double()
    out = reference.attend(*wide, index, case["scale"], case["softcap"], sinks)[:, 0]
    return out.masked_fill((lens < 1).view(-1, 1, 1), 0)


def exact_chunks(case: dict[str, Any]) -> Tensor:
    """As torch attends them; what is NaN because nobody may see it is 0 for it."""
    keys, values = (case[name].double().nan_to_num() for name in ("key_cache", "value_cache"))
    starts, lens = case["starts"].tolist(), case["context_lens"].tolist()
    index = RaggedIndex(case["block_tables"], starts, lens, keys.shape[2], case["sliding_window"])
    sinks = None if case["sinks"] is None else case["sinks"].double()
    how = case["scale"], case["softcap"], sinks
    return reference.attend_ragged(case["query"].double(), keys, values, index, *how, scratch=Scratch())


@pytest.mark.parametrize("dtype", DTYPES)
def test_best_of_rows(kernels: CpuKernels, dtype: torch.dtype) -> None:
    """Few different numbers, so that many are equal; NaN, infinities and zeros of both signs among them."""
    draw = random.Random(0)
    special = [torch.nan, torch.inf, -torch.inf, 0.0, -0.0]
    for width in (1, 2, 15, 16, 17, 31, 32, 100, 1000, 40_001):
        for most in ([], special[1:], special):
            pool = torch.tensor([draw.choice([*most, -2.0, -1.0]) for _ in range(9)])
            table = pool[torch.randint(len(pool), (7, width + 5))].to(dtype)
            scores = table[:, :width]
            found, expected = kernels.best_of(scores), best_of(scores)
            assert torch.equal(found[1], expected[1])
            torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0, equal_nan=True)
    with pytest.raises(ValueError, match="best_of"):
        kernels.best_of(torch.empty(3, 0))
    with pytest.raises(UnservedError, match="best_of"):
        kernels.best_of(torch.zeros(8, 3).t())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunks", [False, True], ids=["rows", "chunks"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_random_batches(kernels: CpuKernels, dtype: torch.dtype, chunks: bool, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    attend = kernels.attend_chunks if chunks else kernels.attend_rows
    try:
        for seed in range(25):
            torch.manual_seed(seed)
            case = attention_case(random.Random(seed), dtype, chunks)
            shape = (*case["query"].shape[:2], case["value_cache"].shape[3])
            out, memory = guarded(*shape, dtype=dtype)
            attend(**case, out=out, work=int(case["context_lens"].sum()))
            assert error(out, exact(case)) < BOUND[dtype], f"seed {seed}"
            assert intact(memory), f"seed {seed}"
    finally:
        torch.set_num_threads(before)


def test_a_long_context_takes_no_memory_for_the_short_ones(kernels: CpuKernels) -> None:
    """Its parts are kept until they are merged: each sequence has as many as it needs, not as the longest one."""
    keys, values = torch.randn(2, 2, 16, 16), torch.randn(2, 2, 16, 128)
    tables, lens = torch.ones(64, 12_500, dtype=torch.int32), torch.ones(64, dtype=torch.int32)
    tables[::2], lens[5] = 0, 200_000
    query, out = torch.randn(64, 16, 16), torch.empty(64, 16, 128)
    grown = []

    def attend() -> None:  # the calling thread keeps the room
        before = psutil.Process().memory_info().rss
        kernels.attend_rows(query, keys, values, tables, lens, 1.0, 0, 0.0, None, out, 200_063)
        grown.append(psutil.Process().memory_info().rss - before)

    thread = threading.Thread(target=attend)
    thread.start()
    thread.join()
    assert grown[0] < 50 * 2**20, "it was 200 MB"
    for row in (0, 5, 63):
        alone = torch.empty(1, 16, 128)
        one = slice(row, row + 1)
        kernels.attend_rows(query[one], keys, values, tables[one], lens[one], 1.0, 0, 0.0, None, alone, 1)
        torch.testing.assert_close(alone, out[one], rtol=1e-4, atol=1e-5)


def test_one_head_may_lie_anywhere(kernels: CpuKernels) -> None:
    """The stride from head to head says nothing when there is one, and no copy would change it."""
    states = torch.randn(1, 1, 3, 32)[0].transpose(0, 1)
    assert states.is_contiguous() and states.stride(1) != 32
    keys, out = torch.randn(3, 1, 4, 32), torch.empty(3, 1, 32)
    tables, lens = torch.arange(3, dtype=torch.int32).unsqueeze(1), torch.tensor([4, 1, 2], dtype=torch.int32)
    case = {"query": states, "key_cache": keys, "value_cache": keys, "block_tables": tables, "context_lens": lens}
    case |= {"scale": 1.0, "sliding_window": 0, "softcap": 0.0, "sinks": None}
    kernels.attend_rows(**case, out=out, work=7)
    assert error(out, exact(case)) < BOUND[torch.float32]


def test_what_is_not_a_number_stays_seen(kernels: CpuKernels) -> None:
    """NaN in a query, a key or a value reaches the result of just that sequence: anomaly mode looks for it there."""
    clean = torch.randn(2, 2, 16), torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16)
    tables, lens = torch.tensor([[0], [1]], dtype=torch.int32), torch.tensor([16, 16], dtype=torch.int32)
    for part in range(3):
        tensors = [one.clone() for one in clean]
        tensors[part][1].select(-2, 0)[..., 3] = torch.nan
        out = torch.empty(2, 2, 16)
        kernels.attend_rows(*tensors, tables, lens, 0.25, 0, 0.0, None, out, 32)
        assert out[0].isfinite().all() and out[1].isnan().any(), part


def test_scores_beyond_the_range_of_an_exponent(kernels: CpuKernels) -> None:
    """One key is above all others by more than a float's exponent holds, wherever it stands; others are -inf apart."""
    for place in (0, 31, 64, 99):
        keys, values = torch.full((7, 1, 16, 16), -60.0), torch.zeros(7, 1, 16, 16)
        keys[place // 16, 0, place % 16], values[place // 16, 0, place % 16] = 60.0, 5.0
        out = torch.empty(1, 1, 16)
        table = torch.arange(7, dtype=torch.int32).unsqueeze(0)
        lens = torch.tensor([100], dtype=torch.int32)
        kernels.attend_rows(torch.ones(1, 1, 16), keys, values, table, lens, 1.0, 0, 0.0, None, out, 100)
        assert torch.equal(out, torch.full_like(out, 5.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("out_features", "in_features"), [(64, 32), (1, 16), (100, 768), (193, 34), (1280, 768)])
def test_product(kernels: CpuKernels, out_features: int, in_features: int, dtype: torch.dtype) -> None:
    weight = torch.randn(out_features, in_features).div(8).to(dtype)
    packed = kernels.pack(weight)
    if packed is None:
        assert dtype not in library().products
        pytest.skip("this CPU leaves products of this dtype to torch")
    bias = torch.randn(out_features).to(dtype)
    for rows in (0, 1, 2, 3, 5, 6, 7, 97, 200):
        states = torch.randn(rows, in_features).to(dtype)
        for added in (None, bias):
            found = kernels.linear(states.unsqueeze(0), packed, added, out_features)
            expected = states.double() @ weight.double().T + (0 if added is None else added.double())
            assert found.shape == (1, rows, out_features) and found.dtype == dtype
            assert not rows or error(found[0], expected) < BOUND[dtype]


def test_what_no_kernel_takes_is_refused_before_anything_is_written(kernels: CpuKernels) -> None:
    half = torch.zeros(2, 32, dtype=torch.float16)
    rows, out = torch.zeros(2, 32), torch.full((2, 32), GUARD)
    refused = [
        lambda: kernels.rms_norm(half, torch.zeros(32).half(), 1e-6, None, half),
        lambda: kernels.rms_norm(rows[:, :20], torch.zeros(20), 1e-6, None, out[:, :20]),
        lambda: kernels.rms_norm(rows.t().contiguous().t(), torch.zeros(32), 1e-6, None, out),
        lambda: kernels.rms_norm(rows, torch.zeros(64)[::2], 1e-6, None, out),
        lambda: kernels.silu_and_mul(torch.zeros(2, 40), out[:, :20]),
        lambda: kernels.rotary_embedding(*(out.unsqueeze(1),) * 2, rows, rows, torch.zeros(2, dtype=torch.int32)),
    ]
    wrong = [
        lambda: kernels.rms_norm(rows, torch.zeros(16), 1e-6, None, out),
        lambda: kernels.rms_norm(rows, torch.zeros(32), 1e-6, torch.zeros(1, 32), out),
        lambda: kernels.silu_and_mul(rows, out),
        lambda: kernels.linear(rows, torch.zeros(64 * 31), None, 64),
        lambda: kernels.linear(rows, torch.zeros(64 * 32), torch.zeros(63), 64),
    ]
    for call in refused:
        with pytest.raises(UnservedError):
            call()
    for call in wrong:
        with pytest.raises(ValueError, match="do not fit each other"):
            call()
    assert bool((out == GUARD).all())


SHAPES = ["key_cache", "block_tables", "context_lens", "query", "sinks", "out"]


@pytest.mark.parametrize(
    ("chunks", "name"), [*((False, name) for name in SHAPES), *((True, name) for name in [*SHAPES, "starts"])]
)
def test_attention_believes_no_shape(kernels: CpuKernels, name: str, chunks: bool) -> None:
    case = attention_case(random.Random(3), torch.float32, chunks)
    case["sinks"] = torch.randn(case["query"].shape[1])
    case["out"] = torch.empty(*case["query"].shape[:2], case["value_cache"].shape[3])
    case[name] = case[name].narrow(0 if name != "key_cache" else 2, 0, 0)
    attend = kernels.attend_chunks if chunks else kernels.attend_rows
    with pytest.raises(ValueError, match=attend.__name__):
        attend(**case, work=1)
