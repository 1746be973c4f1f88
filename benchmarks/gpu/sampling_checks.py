"""The sampling kernel in bulk: the reference's token in nearly every row, and draws in the right proportions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from yaie_cuda import reference
from yaie_cuda.lab.trial import kernel_function

from .context import Context

ROWS, TINY_ROWS = 10_000, 64
LEAST_SHARE = 0.999
CHI_ROWS, CHI_VOCAB = 20_000, 64
MOST_CHI = 63 + 5 * math.sqrt(2 * 63)
"""Five standard deviations above the mean of chi-square with 63 degrees of freedom."""


def run(context: Context) -> None:
    """The vocabularies of both block sizes; then frequencies."""
    rows = TINY_ROWS if context.tiny else ROWS
    for vocab in (1000,) if context.tiny else (1000, 32_000):
        with context.guarded(f"sampling, vocabulary {vocab}"):
            equal = sum(_equal(context, min(1000, rows - start), vocab, start) for start in range(0, rows, 1000))
            name = f"sampling gives the reference's token, vocabulary {vocab}"
            context.check(name, equal >= LEAST_SHARE * rows, f"{equal} of {rows} rows")
    with context.guarded("frequencies of sampling"):
        statistic = _chi_square(context, 640 if context.tiny else CHI_ROWS)
        context.check(
            "sampling draws in proportion", statistic < MOST_CHI, f"chi-square {statistic:.1f} < {MOST_CHI:.0f}"
        )


def arguments(rows: int, vocab: int, seed: int, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Logits and settings of every kind, mixed from row to row: greedy, top-k, top-p, min-p, all, none."""
    draw = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, vocab, generator=draw) * 3).to(dtype)
    kind = torch.arange(rows) % 6
    temperature = torch.where(kind == 0, 0.0, 0.5 + torch.rand(rows, generator=draw))
    top_k = torch.where((kind == 1) | (kind == 4), 40, 0).to(torch.int32)
    top_p = torch.where((kind == 2) | (kind == 4), 0.9, 1.0)
    min_p = torch.where((kind == 3) | (kind == 4), 0.05, 0.0)
    seeds = torch.randint(-(2**62), 2**62, (rows,), generator=draw)
    counters = torch.randint(0, 2**40, (rows,), generator=draw)
    given = (logits, temperature, top_k, top_p, min_p, seeds, counters, torch.full((rows,), -7))
    return [each.to(device) for each in given]


def _equal(context: Context, rows: int, vocab: int, seed: int) -> int:
    """How many rows get the reference's token."""
    given = arguments(rows, vocab, seed, context.bench.device, torch.bfloat16)
    *inputs, out = given
    kernel_function("top_k_top_p_sample")(context.bench.launcher, *inputs, out)
    context.bench.wait()
    right = torch.empty_like(out)
    define: Callable[..., None] = reference.top_k_top_p_sample
    define(*inputs, right)
    return int((out == right).sum())


def _chi_square(context: Context, rows: int) -> float:
    """Of one distribution over CHI_VOCAB tokens, drawn `rows` times."""
    device = context.bench.device
    logits = (torch.arange(CHI_VOCAB) % 8).float().mul(0.3)
    expected = logits.double().softmax(0) * rows
    off = [torch.full((rows,), value, device=device) for value in (1.0, 0, 1.0, 0.0)]
    off[1] = off[1].to(torch.int32)
    out = torch.empty(rows, dtype=torch.int64, device=device)
    seeds = torch.full((rows,), 1234, dtype=torch.int64, device=device)
    counters = torch.arange(rows, dtype=torch.int64, device=device) << 32
    logits = logits.expand(rows, CHI_VOCAB).contiguous().to(device)
    kernel_function("top_k_top_p_sample")(context.bench.launcher, logits, *off, seeds, counters, out)
    context.bench.wait()
    seen = torch.bincount(out.cpu(), minlength=CHI_VOCAB).double()
    return float(((seen - expected) ** 2 / expected).sum())
