"""Attention at the sizes of real work: long ragged contexts in a pool of over 2^31 numbers, some rows held against a
dense softmax in float64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from yaie_cuda.attention import paged_attention_decode_kernel, paged_attention_prefill_kernel
from yaie_cuda.cascade import cascade_attention_decode_kernel

from .context import Context
from .op_trial import MOST_ERROR, relative_error


@dataclass(frozen=True, slots=True)
class Scale:
    """How large: `blocks` in the pool, sequences of up to `longest` tokens, prompts of `rows` new ones, a prefix."""

    blocks: int
    batch: int
    longest: int
    rows: int
    prefix: int
    heads: int
    kv_heads: int
    head_dim: int


LARGE = Scale(140_000, 64, 16_384, 2048, 4096, 32, 8, 128)
TINY = Scale(64, 3, 150, 40, 32, 4, 2, 64)
BLOCK_SIZE = 16
SAMPLED = 6


class Pool:
    """Random keys and values in bfloat16, and blocks handed out in random order."""

    def __init__(self, scale: Scale, device: torch.device) -> None:
        shape = (scale.blocks, scale.kv_heads, BLOCK_SIZE, scale.head_dim)
        self.keys, self.values = (torch.empty(shape, dtype=torch.bfloat16, device=device).normal_() for _ in range(2))
        self._free = iter(torch.randperm(scale.blocks, generator=torch.Generator().manual_seed(3)).tolist())
        self.device = device

    def table(self, lens: Iterable[int], prefix: int = 0) -> Tensor:
        """Block tables of sequences of these lengths; the first `prefix` tokens lie in the same blocks."""
        head = [next(self._free) for _ in range(prefix // BLOCK_SIZE)]
        rows = [head + [next(self._free) for _ in range(-(-length // BLOCK_SIZE) - len(head))] for length in lens]
        width = max(map(len, rows))
        padded = [row + [0] * (width - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.int32, device=self.device)

    def tokens(self, cache: Tensor, table: Tensor, length: int) -> Tensor:
        """Keys or values of one sequence, [length, kv_heads, head_dim] in float64."""
        blocks = cache[table[: -(-length // BLOCK_SIZE)].long()]
        return blocks.transpose(1, 2).flatten(0, 1)[:length].double()

    def attended(self, query: Tensor, table: Tensor, length: int) -> Tensor:
        """Attention of one row, [heads, head_dim], over the first `length` tokens of its sequence, in float64."""
        keys, values = (self.tokens(cache, table, length) for cache in (self.keys, self.values))
        rows = query.double().view(keys.shape[1], -1, query.shape[-1])  # [kv_heads, group, head_dim]
        scores = torch.einsum("hgd,thd->hgt", rows, keys) * query.shape[-1] ** -0.5
        return torch.einsum("hgt,thd->hgd", scores.softmax(-1), values).view(query.shape)


def run(context: Context) -> None:
    """Decodes, the end of a prompt, decodes below a prefix."""
    scale = TINY if context.tiny else LARGE
    pool = Pool(scale, context.bench.device)
    for name, check in (("decode", decode), ("prefill", prefill), ("cascade", cascade)):
        with context.guarded(f"{name} at full size"):
            error = check(context, scale, pool)
            bound = MOST_ERROR[torch.bfloat16]
            context.check(f"{name} at full size equals a dense softmax", error <= bound, f"off by {error:.1e}")


def lengths(scale: Scale) -> list[int]:
    """From a few tokens to the longest, in no order."""
    step = scale.longest // scale.batch
    return [1 + (7 * i) % scale.batch * step + i % 13 for i in range(scale.batch - 1)] + [scale.longest]


def random_query(context: Context, *shape: int) -> Tensor:
    """Normally distributed, in bfloat16."""
    return torch.randn(shape, device=context.bench.device).to(torch.bfloat16)


def sampled(count: int) -> list[int]:
    """Some of `count` rows, the last one among them."""
    return sorted({*range(0, count, max(1, count // SAMPLED)), count - 1})


def decode(context: Context, scale: Scale, pool: Pool) -> float:
    """The largest error of the sampled sequences."""
    lens = lengths(scale)
    # Half of the pool's blocks at most, so that what comes after finds some too.
    while sum(lens) > pool.keys.shape[0] * BLOCK_SIZE // 2:
        lens = lens[1:]
    tables = pool.table(lens)
    query = random_query(context, len(lens), 1, scale.heads, scale.head_dim)
    out = torch.full_like(query, torch.nan)
    lens_there = torch.tensor(lens, dtype=torch.int32, device=pool.device)
    paged = (query, pool.keys, pool.values, tables, lens_there)
    paged_attention_decode_kernel(context.bench.launcher, *paged, scale.head_dim**-0.5, 0, 0.0, None, out, None)
    context.bench.wait()
    return max(relative_error(out[i, 0], pool.attended(query[i, 0], tables[i], lens[i])) for i in sampled(len(lens)))


def prefill(context: Context, scale: Scale, pool: Pool) -> float:
    """Two prompts: one that begins, one that ends at the longest context."""
    lens = [scale.rows, scale.longest]
    tables = pool.table(lens)
    query = random_query(context, 2 * scale.rows, scale.heads, scale.head_dim)
    out = torch.full_like(query, torch.nan)
    starts, lens_there = (
        torch.tensor(values, dtype=torch.int32, device=pool.device)
        for values in ([0, scale.rows, 2 * scale.rows], lens)
    )
    paged_attention_prefill_kernel(
        context.bench.launcher,
        query,
        pool.keys,
        pool.values,
        tables,
        starts,
        lens_there,
        scale.rows,
        scale.head_dim**-0.5,
        0,
        0.0,
        None,
        out,
        None,
    )
    context.bench.wait()
    errors = []
    for sequence, length in enumerate(lens):
        for row in sampled(scale.rows):
            place, seen = sequence * scale.rows + row, length - scale.rows + row + 1
            errors.append(relative_error(out[place], pool.attended(query[place], tables[sequence], seen)))
    return max(errors)


def cascade(context: Context, scale: Scale, pool: Pool) -> float:
    """A whole batch below one prefix, each with a few tokens of its own."""
    lens = [scale.prefix + 1 + (5 * i) % 90 for i in range(scale.batch)]
    tables = pool.table(lens, scale.prefix)
    query = random_query(context, scale.batch, 1, scale.heads, scale.head_dim)
    out = torch.full_like(query, torch.nan)
    starts, lens_there, shared = (
        torch.tensor(values, dtype=torch.int32, device=pool.device)
        for values in ([0, scale.batch], lens, [scale.prefix] * scale.batch)
    )
    paged = (query, pool.keys, pool.values, tables, lens_there, starts, shared, scale.batch)
    cascade_attention_decode_kernel(context.bench.launcher, *paged, scale.head_dim**-0.5, 0.0, None, out, None)
    context.bench.wait()
    return max(relative_error(out[i, 0], pool.attended(query[i, 0], tables[i], lens[i])) for i in sampled(len(lens)))
