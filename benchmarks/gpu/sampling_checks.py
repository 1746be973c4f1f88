"""The sampling kernels in bulk: the reference's token in nearly every row, draws in the right proportions, one wait."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

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
    with context.guarded("the sampler on kernels"):
        _sampler(context, 28 if context.tiny else 252, 1000 if context.tiny else 128_000)


def _sampler(context: Context, rows: int, vocab: int) -> None:
    """Penalties, bias and log-probabilities: the torch sampler's tokens, and the device is waited for once."""
    from yaie_engine.kernel_draw import KernelDraw
    from yaie_engine.params import SamplingParams
    from yaie_engine.sampler import Sampler

    launcher, device = context.bench.launcher, context.bench.device

    def op(name: str) -> Callable[..., None]:
        return lambda *given: kernel_function(name)(launcher, *given)

    changes: list[dict[str, Any]] = [
        {},
        {"repetition_penalty": 1.2},
        {"presence_penalty": 0.5, "frequency_penalty": 0.3, "logprobs": 5},
        {"logit_bias": {3: 2.0, 9: -5.0}},
        {"min_tokens": 3, "stop_token_ids": [4]},
        {"temperature": 0, "repetition_penalty": 1.5, "logprobs": 0},
        {"top_k": 30, "top_p": 0.9, "frequency_penalty": 0.7},
    ]
    ours = Sampler(vocab, vocab - 3, (2,), KernelDraw(op("top_k_top_p_sample"), op("apply_penalties")))
    params = [SamplingParams(**change) for change in changes]
    states = [ours.new_row(params[i % len(params)], seed=i, prompt_token_ids=range(i, i + 200)) for i in range(rows)]
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(8)).mul(3).to(device)
    right = Sampler(vocab, vocab - 3, (2,)).sample(logits, states)
    ours.sample(logits, states)
    context.bench.wait()
    found, waits = _counted(device, lambda: ours.sample(logits, states))
    equal = sum(one.token_id == other.token_id for one, other in zip(found, right, strict=True))
    context.check("the sampler on kernels gives torch's tokens", equal >= LEAST_SHARE * rows, f"{equal} of {rows} rows")
    if waits is not None:
        context.check("the sampler on kernels waits once", waits == 1, f"{waits} waits for the device")


def _counted(device: torch.device, run: Callable[[], Any]) -> tuple[Any, int | None]:
    """What `run` gives, and how often it waited for a GPU."""
    if device.type != "cuda":
        return run(), None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            result = run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return result, sum("synchroniz" in str(one.message) for one in heard)


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
