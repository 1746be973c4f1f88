"""Two attention results over different keys become one: reference and emulated kernel."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda.attention import merge_attention_states_kernel
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


def test_opcheck() -> None:
    a, lse_a, b, lse_b, _, _ = states(4, 16, torch.float32)
    arguments = (a, lse_a, b, lse_b, torch.empty_like(a), torch.empty_like(lse_a))
    torch.library.opcheck(torch.ops.yaie.merge_attention_states.default, arguments)
