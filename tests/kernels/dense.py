"""Attention written out in float64 over dense keys: the truth that the paged ops are held to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One attention problem. `lens` are (query rows, context) per sequence."""

    lens: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    key_dim: int = 16
    value_dim: int = 16
    block_size: int = 4
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        return (
            f"{self.lens} H{self.heads}/{self.kv_heads} D{self.key_dim}/{self.value_dim} B{self.block_size} "
            f"W{self.window} C{self.softcap} S{int(self.sinks)} {self.dtype}"
        )


class Problem:
    """Tensors of a case: scattered blocks, everything that no sequence owns or has not reached filled with NaN."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case = case
        draw = torch.Generator().manual_seed(seed)
        self.contexts = [context for _, context in case.lens]
        counts = [-(-context // case.block_size) for context in self.contexts]
        num_blocks = sum(counts) + 3
        order = torch.randperm(num_blocks, generator=draw).tolist()
        width = max(counts, default=0) + 2
        self.tables = torch.full((len(counts), width), -1, dtype=torch.int32)
        self.key_cache = torch.full((num_blocks, case.kv_heads, case.block_size, case.key_dim), math.nan)
        self.value_cache = torch.full((num_blocks, case.kv_heads, case.block_size, case.value_dim), math.nan)
        self.keys, self.values, self.queries = [], [], []
        for i, (rows, context) in enumerate(case.lens):
            blocks, order = order[: counts[i]], order[counts[i] :]
            self.tables[i, : counts[i]] = torch.tensor(blocks, dtype=torch.int32)
            self.tables[i, counts[i] :] = num_blocks - 1 if i % 2 else -1  # what lies behind a table means nothing
            self.keys.append(torch.randn(context, case.kv_heads, case.key_dim, generator=draw).to(case.dtype))
            self.values.append(torch.randn(context, case.kv_heads, case.value_dim, generator=draw).to(case.dtype))
            self.queries.append(torch.randn(rows, case.heads, case.key_dim, generator=draw).to(case.dtype))
            for position in range(context):
                block, offset = blocks[position // case.block_size], position % case.block_size
                self.key_cache[block, :, offset] = self.keys[i][position].float()
                self.value_cache[block, :, offset] = self.values[i][position].float()
        self.key_cache, self.value_cache = self.key_cache.to(case.dtype), self.value_cache.to(case.dtype)
        self.context_lens = torch.tensor(self.contexts, dtype=torch.int32)
        self.starts = torch.tensor([0, *torch.tensor([n for n, _ in case.lens]).cumsum(0).tolist()], dtype=torch.int32)
        self.sinks = torch.randn(case.heads, generator=draw).to(case.dtype) if case.sinks else None
        self.scale = case.key_dim**-0.5

    def expected(self) -> tuple[Tensor, Tensor]:
        """Out [rows, heads, value_dim] and base-2 lse [rows, heads] of all sequences end to end, in float64."""
        outs, lses = [], []
        for query, key, value in zip(self.queries, self.keys, self.values, strict=True):
            for row in range(query.shape[0]):
                out, lse = self._row(query[row].double(), key.double(), value.double(), row - query.shape[0])
                outs.append(out)
                lses.append(lse)
        return torch.stack(outs), torch.stack(lses)

    def _row(self, query: Tensor, key: Tensor, value: Tensor, back: int) -> tuple[Tensor, Tensor]:
        case = self.case
        position = key.shape[0] + back
        first = max(0, position - case.window + 1) if case.window else 0
        out = torch.zeros(case.heads, case.value_dim, dtype=torch.float64)
        lse = torch.full((case.heads,), -math.inf, dtype=torch.float64)
        for head in range(case.heads):
            kv = head // (case.heads // case.kv_heads)
            scores = key[first : max(position + 1, 0), kv] @ query[head] * self.scale
            if case.softcap:
                scores = torch.tanh(scores / case.softcap) * case.softcap
            terms = scores if self.sinks is None else torch.cat([scores, self.sinks[head].double().view(1)])
            if terms.numel():
                total = torch.logsumexp(terms, 0)
                out[head] = torch.exp(scores - total) @ value[first : max(position + 1, 0), kv]
                lse[head] = total / math.log(2)
        return out, lse
