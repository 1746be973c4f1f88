"""Two attention results over different keys become one: reference and emulated kernel."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda.attention import merge_attention_states_kernel
from yaie_cuda.checks import UnservedError
from yaie_cuda.emulator.launcher import EmulatorLauncher

pytestmark = pytest.mark.timeout(120)
TYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16, 64, 4e-3),
    "f16": (torch.float16, torch.float16, 96, 1e-3),
    "f32-bf16": (torch.float32, torch.bfloat16, 64, 4e-3),
    "f32": (torch.float32, torch.float32, 80, 1e-6),
}


def states(rows: int, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Two results over random scores, some of which saw nothing; and the one over all, in float64."""
    draw = torch.Generator().manual_seed(rows)
    scores = torch.randn(rows, 3, 12, generator=draw, dtype=torch.float64) * 3
    values = torch.randn(12, head_dim, generator=draw, dtype=torch.float64)
    scores[0, :, :5] = -math.inf
    scores[1, :, 5:] = -math.inf
    scores[2] = -math.inf

    def attend(part: slice) -> tuple[Tensor, Tensor]:
        lse = torch.logsumexp(scores[..., part], -1)
        weights = torch.exp(scores[..., part] - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1))
        return weights @ values[part], lse / math.log(2)

    (a, lse_a), (b, lse_b), (both, lse) = attend(slice(5)), attend(slice(5, 12)), attend(slice(12))
    return a.to(dtype), lse_a.float(), b.to(dtype), lse_b.float(), both, lse


def check(out: Tensor, lse: Tensor, expected: Tensor, expected_lse: Tensor, bound: float) -> None:
    assert float((out.double() - expected).norm() / expected.norm()) < bound
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-6, rtol=2e-6)
    assert (out[2] == 0).all()
    assert lse[2].isneginf().all()


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("rows", [3, 5, 37])
def test_kernel_and_reference(rows: int, types: str) -> None:
    dtype, result, head_dim, bound = TYPES[types]
    a, lse_a, b, lse_b, expected, expected_lse = states(rows, head_dim, dtype)
    out, lse = torch.full(expected.shape, math.nan, dtype=result), torch.full(expected_lse.shape, math.nan)
    torch.ops.yaie.merge_attention_states(a, lse_a, b, lse_b, out, lse)
    check(out, lse, expected, expected_lse, bound)
    merge_attention_states_kernel(EmulatorLauncher(), a, lse_a, b, lse_b, out.fill_(math.nan), lse.fill_(math.nan))
    check(out, lse, expected, expected_lse, bound)


def test_refusals() -> None:
    a, lse_a, b, lse_b, _, _ = states(3, 64, torch.bfloat16)
    for out, lse, message in (
        (torch.empty(3, 3, 64), torch.empty(3, 3), "no kernel merges"),
        (torch.empty(3, 3, 64, dtype=torch.bfloat16), torch.empty(3, 4), "lse has shape"),
        (torch.empty(3, 4, 64, dtype=torch.bfloat16), torch.empty(3, 4), "out_a has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            merge_attention_states_kernel(EmulatorLauncher(), a, lse_a, b, lse_b, out, lse)
    a, lse_a, b, lse_b, _, _ = states(3, 72, torch.bfloat16)
    with pytest.raises(ValueError, match="head_dim 72"):
        merge_attention_states_kernel(EmulatorLauncher(), a, lse_a, b, lse_b, torch.empty_like(a), lse_a.clone())


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("unseen", [math.nan, math.inf])
def test_what_an_unseen_part_holds_does_not_matter(types: str, unseen: float) -> None:
    """Nobody need write the output of a row that saw no key; nor of one whose weight is far below the other's."""
    dtype, result, head_dim, bound = TYPES[types]
    a, lse_a, b, lse_b, expected, expected_lse = states(4, head_dim, dtype)
    a[lse_a.isneginf()] = unseen
    b[lse_b.isneginf()] = unseen
    a[3], lse_a[3] = unseen, -1e6
    expected[3], expected_lse[3] = b[3].double(), lse_b[3].double()
    for run in (torch.ops.yaie.merge_attention_states, partial(merge_attention_states_kernel, EmulatorLauncher())):
        out, lse = torch.full(expected.shape, math.nan, dtype=result), torch.full(expected_lse.shape, math.nan)
        run(a, lse_a, b, lse_b, out, lse)
        check(out, lse, expected, expected_lse, bound)


@pytest.mark.parametrize("types", ["bf16", "f32"])
@pytest.mark.parametrize("which", [0, 1])
def test_in_place(types: str, which: int) -> None:
    """`out` may be either part; `lse` may not, which the reference alone can do."""
    dtype, _, head_dim, bound = TYPES[types]
    launcher = EmulatorLauncher()
    a, lse_a, b, lse_b, expected, expected_lse = states(5, head_dim, dtype)
    lse = torch.empty_like(lse_a)
    out = (a, b)[which]
    merge_attention_states_kernel(launcher, a, lse_a, b, lse_b, torch.empty_like(a), lse)
    for target in (lse_a, lse_b):
        with pytest.raises(UnservedError, match="lse lies over"):
            merge_attention_states_kernel(launcher, a, lse_a, b, lse_b, torch.empty_like(a), target)
    merge_attention_states_kernel(launcher, a, lse_a, b, lse_b, out, lse)
    check(out, lse, expected, expected_lse, bound)
    a, lse_a, b, lse_b, _, _ = states(5, head_dim, dtype)
    torch.ops.yaie.merge_attention_states(a, lse_a, b, lse_b, a, lse_a)
    check(a, lse_a, expected, expected_lse, bound)


def test_parts_and_results_that_overlap_otherwise() -> None:
    a, lse_a, b, lse_b, _, _ = states(4, 64, torch.float32)
    lse = torch.empty_like(lse_a)
    narrow = a.view(torch.bfloat16).flatten()[: a.numel()].view(a.shape)
    room = torch.zeros(5, 3, 64)
    for part, out in ((a, narrow), (room[:4], room[1:])):
        with pytest.raises(UnservedError, match="out lies over"):
            merge_attention_states_kernel(EmulatorLauncher(), part, lse_a, b, lse_b, out, lse)


@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize("types", TYPES)
def test_addresses_that_are_no_multiples_of_16(types: str, which: int) -> None:
    dtype, result, head_dim, _ = TYPES[types]
    a, lse_a, b, lse_b, _, _ = states(3, head_dim, dtype)
    given = [a, lse_a, b, lse_b, torch.empty(a.shape, dtype=result), torch.empty_like(lse_a)]
    merge_attention_states_kernel(launcher := EmulatorLauncher(), *given)
    flat = torch.zeros(given[which].numel() + 1, dtype=given[which].dtype)
    given[which] = flat[1:].view(given[which].shape)
    with pytest.raises(UnservedError, match="multiples of 16"):
        merge_attention_states_kernel(launcher, *given)
