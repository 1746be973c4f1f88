"""How fast attention is: decodes in shares of the copy bandwidth, prompts in operations per second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from yaie_cuda.attention import (
    merge_attention_states_kernel,
    paged_attention_decode_kernel,
    paged_attention_prefill_kernel,
)

from .clock import Call, Timing, num_buffers, time_calls
from .context import Context


@dataclass(frozen=True, slots=True)
class Shape:
    """`batch` sequences of `tokens` tokens each, with the heads of an 8B Llama in bfloat16."""

    batch: int
    tokens: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16

    @property
    def cache_bytes(self) -> int:
        """Keys and values of all sequences."""
        return self.batch * self.tokens * self.kv_heads * self.head_dim * 2 * 2

    @property
    def causal_operations(self) -> float:
        """Two products over half of the square of tokens, a multiplication and an addition each."""
        return 4.0 * self.batch * self.tokens**2 / 2 * self.heads * self.head_dim


DECODES = ((32, 4096), (64, 4096), (128, 4096), (32, 16_384), (64, 8192), (128, 16_384))
JUDGED_BATCH = 32
SINGLE = ((1, 1024), (1, 32_768))
PREFILLS = (8192, 16_384)


class Paged:
    """Random keys, values and tables of a shape, on the device."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        columns = -(-shape.tokens // shape.block_size)
        blocks = shape.batch * columns
        cache = (blocks, shape.kv_heads, shape.block_size, shape.head_dim)
        self.keys, self.values = (torch.empty(cache, dtype=torch.bfloat16, device=device).normal_() for _ in range(2))
        self.tables = torch.randperm(blocks, device=device).view(shape.batch, columns).to(torch.int32)
        self.lens = torch.full((shape.batch,), shape.tokens, dtype=torch.int32, device=device)


def run(context: Context, bandwidth: float, samples: int) -> None:
    """Decodes, prompts, merges."""
    for shape in decode_shapes(context):
        with context.guarded(f"decode {shape.batch} x {shape.tokens}"):
            timing = decode_timing(context, shape, samples)
            share = shape.cache_bytes / timing.median / bandwidth * 100
            note = f"{shape.cache_bytes / timing.median / 1e12:.2f} TB/s, {share:.0f} % of copy"
            target = "decode" if shape.batch >= JUDGED_BATCH or context.tiny else ""
            name = f"decode attention, {shape.batch} x {shape.tokens}"
            context.measured(name, timing, "us", note, target, share if target else None)
    for tokens in (48,) if context.tiny else PREFILLS:
        with context.guarded(f"prefill {tokens}"):
            shape = small(1, tokens) if context.tiny else Shape(1, tokens)
            timing = prefill_timing(context, shape, samples)
            rate = shape.causal_operations / timing.median / 1e12
            note = f"{rate:.0f} TFLOP/s"
            context.measured(f"prefill attention, causal, {tokens}", timing, "ms", note, "prefill", rate)
    with context.guarded("merge"):
        rows = 16 if context.tiny else 32_768
        timing, moved = merge_timing(context, rows, samples)
        note = f"{moved / timing.median / bandwidth * 100:.0f} % of copy"
        context.measured(f"merge of attention states, {rows} rows of 8 heads", timing, "us", note)


def small(batch: int, tokens: int) -> Shape:
    """What an emulator gets through."""
    return Shape(batch, tokens, heads=4, kv_heads=2, head_dim=64)


def decode_shapes(context: Context) -> Iterator[Shape]:
    """Those the target names, and single sequences."""
    if context.tiny:
        yield small(2, 48)
        return
    yield from (Shape(*sizes) for sizes in (DECODES[:3] if context.quick else DECODES))
    yield from (Shape(*sizes) for sizes in SINGLE)


def decode_timing(context: Context, shape: Shape, samples: int) -> Timing:
    """One query row per sequence."""
    device = context.bench.device
    query = torch.randn(shape.batch, 1, shape.heads, shape.head_dim, device=device).to(torch.bfloat16)
    out = torch.empty_like(query)

    def call(paged: Paged) -> Call:
        return lambda: paged_attention_decode_kernel(
            context.bench.launcher,
            query,
            paged.keys,
            paged.values,
            paged.tables,
            paged.lens,
            shape.head_dim**-0.5,
            0,
            0.0,
            None,
            out,
            None,
        )

    count = num_buffers(shape.cache_bytes, context.bench.l2_bytes)
    return time_calls(context.bench, [call(Paged(shape, device)) for _ in range(count)], samples)


def prefill_timing(context: Context, shape: Shape, samples: int) -> Timing:
    """Whole prompts, nothing cached before them."""
    device = context.bench.device
    count = shape.batch * shape.tokens
    query = torch.randn(count, shape.heads, shape.head_dim, device=device).to(torch.bfloat16)
    out = torch.empty_like(query)
    starts = torch.arange(0, count + 1, shape.tokens, dtype=torch.int32, device=device)
    paged = Paged(shape, device)

    def call() -> None:
        paged_attention_prefill_kernel(
            context.bench.launcher,
            query,
            paged.keys,
            paged.values,
            paged.tables,
            starts,
            paged.lens,
            shape.tokens,
            shape.head_dim**-0.5,
            0,
            0.0,
            None,
            out,
            None,
        )

    return time_calls(context.bench, [call], samples)


def merge_timing(context: Context, rows: int, samples: int) -> tuple[Timing, int]:
    """Two bfloat16 results become one; with the bytes read and written."""
    heads, head_dim = 8, 128
    device = context.bench.device
    moved = rows * heads * (3 * head_dim * 2 + 3 * 4)

    def state() -> tuple[Tensor, Tensor]:
        out = torch.randn(rows, heads, head_dim, device=device).to(torch.bfloat16)
        return out, torch.randn(rows, heads, device=device)

    def call() -> Call:
        states = [*state(), *state(), *state()]
        return lambda: merge_attention_states_kernel(context.bench.launcher, *states)

    count = num_buffers(moved, context.bench.l2_bytes)
    return time_calls(context.bench, [call() for _ in range(count)], samples), moved
