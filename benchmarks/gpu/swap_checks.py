"""Blocks on their way to pinned host memory and back."""

from __future__ import annotations

import torch
from torch import Tensor

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie

from .context import Context

SHAPE, LAYERS = (32, 8, 16, 128), 4
OUT = [[0, 5], [1, 6], [2, 7], [9, 0], [-1, -1], [31, 31]]


def run(context: Context) -> None:
    """What was swapped out and in again is what it was; what nobody named stays."""
    with context.guarded("swap_blocks"):
        device = context.bench.device
        layers = [torch.randn(SHAPE, device=device).to(torch.bfloat16) for _ in range(LAYERS)]
        before = [layer.clone() for layer in layers]
        hosts = [torch.zeros(SHAPE, dtype=torch.bfloat16, pin_memory=device.type == "cuda") for _ in range(LAYERS)]
        named = [pair for pair in OUT if pair[0] >= 0]
        swap(layers, hosts, OUT)
        context.bench.wait()
        sides = list(zip(hosts, layers, strict=True))
        pairs = [(host[there], layer[here].cpu()) for host, layer in sides for here, there in named]
        out = all(torch.equal(*pair) for pair in pairs)
        untouched = all(not host[1].any() for host in hosts)
        for layer in layers:
            layer[[here for here, _ in named]] = 0
        swap(hosts, layers, [[there, here] for here, there in named])
        context.bench.wait()
        back = all(torch.equal(layer, old) for layer, old in zip(layers, before, strict=True))
        detail = f"{len(named)} blocks of {LAYERS} layers"
        context.check("swap_blocks goes out and comes back", out and untouched and back, detail)


def swap(sources: list[Tensor], destinations: list[Tensor], pairs: list[list[int]]) -> None:
    """Through torch, as the engine's callers may."""
    torch.ops.yaie.swap_blocks(sources, destinations, torch.tensor(pairs))
