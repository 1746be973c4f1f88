"""Decodes below a shared prefix: the cascade against our own flat decode on the very same tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from yaie_cuda.attention import paged_attention_decode_kernel
from yaie_cuda.cascade import AttentionSize, cascade_attention_decode_kernel, worth_cascading

from .attention_times import Shape
from .clock import Call, Timing, num_buffers, time_calls
from .context import Context

SUFFIX, TINY_SUFFIX = 128, 16
JUDGED = (64, 4096)
OTHERS = ((64, 128), (64, 256), (64, 512), (64, 1024), (8, 512), (8, 4096), (128, 2048), (2, 8192))
TINY = ((3, 32),)


@dataclass(frozen=True, slots=True)
class Below:
    """`batch` sequences below one prefix of `shared` tokens, with `suffix` tokens each of their own."""

    batch: int
    shared: int
    suffix: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16

    @property
    def flat(self) -> Shape:
        """The same sequences, seen without what they share."""
        return Shape(self.batch, self.shared + self.suffix, self.heads, self.kv_heads, self.head_dim, self.block_size)

    @property
    def size(self) -> AttentionSize:
        """For the choice that the engine makes."""
        return AttentionSize(self.heads, self.kv_heads, self.head_dim)


def run(context: Context, samples: int) -> None:
    """The shape of the target; then shapes where the cascade may lose, as the engine would decide."""
    if context.tiny:
        cases = [Below(batch, shared, TINY_SUFFIX, heads=4, kv_heads=2, head_dim=64) for batch, shared in TINY]
    else:
        cases = [Below(batch, shared, SUFFIX) for batch, shared in (JUDGED, *(OTHERS[:3] if context.quick else OTHERS))]
    for number, case in enumerate(cases):
        name = f"cascade, {case.batch} below {case.shared}"
        with context.guarded(name):
            flat, cascade = timings(context, case, samples)
            ratio = flat.median / cascade.median
            taken = worth_cascading([(case.batch, case.shared)], case.size, case.batch, context.bench.l2_bytes)
            note = f"flat {flat.median * 1e6:.1f} us, {ratio:.2f} times; the engine {'takes' if taken else 'leaves'} it"
            target = "cascade" if number == 0 else "cascade-never-slower" if taken else ""
            context.measured(name, cascade, "us", note, target, ratio if target else None)


class Prefixed:
    """Keys, values and tables of a case; all tables begin with the same blocks."""

    def __init__(self, case: Below, device: torch.device) -> None:
        common, own = case.shared // case.block_size, -(-case.suffix // case.block_size)
        blocks = common + case.batch * own
        cache = (blocks, case.kv_heads, case.block_size, case.head_dim)
        self.keys, self.values = (torch.empty(cache, dtype=torch.bfloat16, device=device).normal_() for _ in range(2))
        order = torch.randperm(blocks, device=device).to(torch.int32)
        head, tail = order[:common].expand(case.batch, common), order[common:].view(case.batch, own)
        self.tables = torch.cat([head, tail], dim=1).contiguous()


def timings(context: Context, case: Below, samples: int) -> tuple[Timing, Timing]:
    """Flat and cascade, each over sets of buffers that exceed the L2 cache."""
    device, launcher = context.bench.device, context.bench.launcher
    query = torch.randn(case.batch, 1, case.heads, case.head_dim, device=device).to(torch.bfloat16)
    out = torch.empty_like(query)
    lens = torch.full((case.batch,), case.shared + case.suffix, dtype=torch.int32, device=device)
    starts = torch.tensor([0, case.batch], dtype=torch.int32, device=device)
    shared = torch.full((case.batch,), case.shared, dtype=torch.int32, device=device)
    scale = case.head_dim**-0.5
    stored = (case.shared + case.batch * case.suffix) * case.kv_heads * case.head_dim * 4
    sets = [Prefixed(case, device) for _ in range(num_buffers(stored, context.bench.l2_bytes))]

    def flat(one: Prefixed) -> Call:
        paged = (query, one.keys, one.values, one.tables, lens)
        return lambda: paged_attention_decode_kernel(launcher, *paged, scale, 0, 0.0, None, out, None)

    def cascade(one: Prefixed) -> Call:
        paged = (query, one.keys, one.values, one.tables, lens, starts, shared, case.batch)
        return lambda: cascade_attention_decode_kernel(launcher, *paged, scale, 0.0, None, out, None)

    return (
        time_calls(context.bench, [flat(one) for one in sets], samples),
        time_calls(context.bench, [cascade(one) for one in sets], samples),
    )
