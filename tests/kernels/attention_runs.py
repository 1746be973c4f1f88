"""Attention problems given to the emulated kernels, and the error bounds they are held to."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.kernels.dense import Case, Problem
from yaie_cuda.attention import paged_attention_decode_kernel, paged_attention_prefill_kernel
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.kernel import Launcher

BOUND = {torch.bfloat16: 4e-3, torch.float16: 1e-3}  # relative Frobenius norm
SPECIALISATIONS = {
    "bf16-d64-b16": (torch.bfloat16, 64, 16),
    "bf16-d128-b16": (torch.bfloat16, 128, 16),
    "f16-d96-b32": (torch.float16, 96, 32),
    "bf16-d80-b16": (torch.bfloat16, 80, 16),
    "bf16-d256-b16": (torch.bfloat16, 256, 16),
    "bf16-d64-b48": (torch.bfloat16, 64, 48),
}
FEATURES = {
    "plain": {},
    "window": {"window": 37},
    "softcap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "all": {"window": 70, "softcap": 3.0, "sinks": True},
}


def case(
    lens: tuple[tuple[int, int], ...], spec: str = "bf16-d64-b16", heads: int = 4, kv_heads: int = 1, **more
) -> Case:
    """A case of one of the specialisations."""
    dtype, head_dim, block_size = SPECIALISATIONS[spec]
    return Case(lens, heads, kv_heads, head_dim, head_dim, block_size, dtype=dtype, **more)


def decode(launcher: Launcher, problem: Problem, **changed: Tensor) -> tuple[Tensor, Tensor]:
    """Out [rows, heads, head_dim] and lse [rows, heads] of the decode op's kernel; `changed` replaces arguments."""
    case = problem.case
    query = changed.pop("query", None)
    query = torch.stack(problem.queries) if query is None else query
    out = torch.full(query.shape, math.nan, dtype=case.dtype)
    lse = torch.full(query.shape[:3], math.nan)
    arguments = {
        "key_cache": problem.key_cache,
        "value_cache": problem.value_cache,
        "block_tables": problem.tables,
        "context_lens": problem.context_lens,
        "sinks": problem.sinks,
        **changed,
    }
    _watch(launcher, query, out, lse, *arguments.values())
    paged_attention_decode_kernel(
        launcher, query, scale=problem.scale, sliding_window=case.window, softcap=case.softcap, out=out, lse=lse,
        **arguments,
    )  # fmt: skip
    return out.flatten(0, 1), lse.flatten(0, 1)


def prefill(launcher: Launcher, problem: Problem, **changed: Tensor) -> tuple[Tensor, Tensor]:
    """The same of the op for chunks."""
    case = problem.case
    query = changed.pop("query", None)
    query = torch.cat(problem.queries) if query is None else query
    out = torch.full(query.shape, math.nan, dtype=case.dtype)
    lse = torch.full(query.shape[:2], math.nan)
    arguments = {
        "key_cache": problem.key_cache,
        "value_cache": problem.value_cache,
        "block_tables": problem.tables,
        "context_lens": problem.context_lens,
        "cu_seqlens_q": problem.starts,
        "sinks": problem.sinks,
        **changed,
    }
    _watch(launcher, query, out, lse, *arguments.values())
    longest = max(rows for rows, _ in case.lens)
    paged_attention_prefill_kernel(
        launcher, query, max_seqlen_q=longest, scale=problem.scale, sliding_window=case.window, softcap=case.softcap,
        out=out, lse=lse, **arguments,
    )  # fmt: skip
    return out, lse


def _watch(launcher: Launcher, *tensors: Tensor | None) -> None:
    if isinstance(launcher, EmulatorLauncher):
        launcher.watch(*tensors)


def check(problem: Problem, got: tuple[Tensor, Tensor]) -> None:
    """Hold results to the float64 truth of the rounded inputs."""
    expected, expected_lse = problem.expected()
    out, lse = got
    assert not out.isnan().any(), "NaN reached the output"
    error = float((out.double() - expected).norm() / expected.norm().clamp_min(1e-9))
    assert error < BOUND[problem.case.dtype], f"{problem.case}: relative error {error:.2e}"
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-5, rtol=2e-5)
    blind = expected_lse.isneginf()
    assert (out[blind] == 0).all(), "a row that sees nothing is not 0"
