"""How fast the kernels beside attention are: cache writes, norms, gates, draws."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from yaie_cuda.cache import reshape_and_cache_kernel
from yaie_cuda.fused import rms_norm_kernel, silu_and_mul_kernel
from yaie_cuda.sampling import top_k_top_p_sample_kernel

from .clock import Call, Timing, num_buffers, time_calls
from .context import Context

KV_HEADS, HEAD_DIM, BLOCK_SIZE = 8, 128, 16
WIDTH = 4096
EPS = 1e-5


def run(context: Context, bandwidth: float, samples: int) -> None:
    """Each is a row of its own; two of them have targets."""
    tokens = 32 if context.tiny else 16_384

    def timed(moved: int, call: Callable[[], Call]) -> tuple[Timing, float, str]:
        count = num_buffers(moved, context.bench.l2_bytes)
        timing = time_calls(context.bench, [call() for _ in range(count)], samples)
        share = moved / timing.median / bandwidth * 100
        return timing, share, f"{share:.0f} % of copy"

    with context.guarded("KV write"):
        moved = tokens * KV_HEADS * HEAD_DIM * 2 * 2 * 2 + tokens * 8
        timing, share, note = timed(moved, lambda: kv_write(context, tokens))
        context.measured(f"KV write, {tokens} tokens", timing, "us", note, "kv-write", share)
    with context.guarded("RMS norm"):
        moved = tokens * WIDTH * 2 * 4
        timing, _, note = timed(moved, lambda: norm(context, tokens))
        context.measured(f"RMS norm with residual, {tokens} x {WIDTH}", timing, "us", note)
    with context.guarded("SiLU gate"):
        moved = tokens * WIDTH * 2 * 3
        timing, _, note = timed(moved, lambda: gate(context, tokens))
        context.measured(f"SiLU and product, {tokens} x {WIDTH}", timing, "us", note)
    rows, vocab = (4, 1000) if context.tiny else (128, 131_072)
    for dtype in (torch.bfloat16,) if context.tiny else (torch.bfloat16, torch.float32):
        name = f"sampling, {rows} x {vocab} {str(dtype).removeprefix('torch.')}"
        with context.guarded(name):
            timing, _, note = timed(rows * vocab * dtype.itemsize, lambda d=dtype: sampling(rows, vocab, d, context))  # type: ignore[misc]
            context.measured(name, timing, "ms", note, "sampling", timing.median * 1e3)


def kv_write(context: Context, tokens: int) -> Call:
    """Whole blocks in random order, as a prompt fills them."""
    device, blocks = context.bench.device, tokens // BLOCK_SIZE
    key, value = (_normal((tokens, KV_HEADS, HEAD_DIM), device) for _ in range(2))
    keys, values = (_normal((blocks, KV_HEADS, BLOCK_SIZE, HEAD_DIM), device) for _ in range(2))
    order = torch.randperm(blocks, device=device).unsqueeze(1) * BLOCK_SIZE
    slots = (order + torch.arange(BLOCK_SIZE, device=device)).flatten()
    return lambda: reshape_and_cache_kernel(context.bench.launcher, key, value, keys, values, slots)


def norm(context: Context, tokens: int) -> Call:
    """With the residual stream: two reads, two writes."""
    device = context.bench.device
    states, residual, out = (_normal((tokens, WIDTH), device) for _ in range(3))
    weight = _normal((WIDTH,), device)
    return lambda: rms_norm_kernel(context.bench.launcher, states, weight, EPS, residual, out)


def gate(context: Context, tokens: int) -> Call:
    """Two reads, one write."""
    both, out = _normal((tokens, 2 * WIDTH), context.bench.device), _normal((tokens, WIDTH), context.bench.device)
    return lambda: silu_and_mul_kernel(context.bench.launcher, both, out)


def sampling(rows: int, vocab: int, dtype: torch.dtype, context: Context) -> Call:
    """Temperature 0.8, top-k 50 and top-p 0.95 in every row."""
    device = context.bench.device
    logits = (torch.randn(rows, vocab, device=device) * 3).to(dtype)
    floats = [torch.full((rows,), value, device=device) for value in (0.8, 0.95, 0.0)]
    top_k = torch.full((rows,), 50, dtype=torch.int32, device=device)
    seeds = torch.arange(rows, dtype=torch.int64, device=device)
    out = torch.empty(rows, dtype=torch.int64, device=device)
    given = (logits, floats[0], top_k, floats[1], floats[2], seeds, seeds, out)
    return lambda: top_k_top_p_sample_kernel(context.bench.launcher, *given)


def _normal(shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_()
