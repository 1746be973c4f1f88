"""Muon for the matrices of the layers, Adam for everything else, and the learning-rate plan both follow."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)


RESUMED_SHARE = 0.3


def plan(step: int, steps: int, *, resumed: bool = False, warmup: int = 60, decay: float = 0.85) -> float:
    """Return the share of the full rate at `step`: up, level, then down to almost nothing.

    A resumed run starts lower and goes down all the way.
    """
    rise = min(1.0, (step + 1) / warmup)
    if resumed:
        return rise * RESUMED_SHARE * max(0.01, (steps - step) / steps)
    left = (steps - step) / max(1.0, steps * decay)
    return rise * max(0.01, min(1.0, left))


def orthogonal(batch: Tensor, rounds: int = 5) -> Tensor:
    """Return matrices [count, rows, columns] with all singular values moved near one (Newton-Schulz)."""
    flip = batch.shape[1] > batch.shape[2]
    x = (batch.transpose(1, 2) if flip else batch).bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(rounds):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    out: Tensor = (x.transpose(1, 2) if flip else x).float()
    return out


class Muon:
    """Momentum whose step is made orthogonal; equal shapes are handled in one batch."""

    def __init__(self, weights: list[nn.Parameter], rate: float, momentum: float = 0.95, shrink: float = 0.02) -> None:
        self.rate, self.momentum, self.shrink = rate, momentum, shrink
        self.groups: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for weight in weights:
            self.groups[weight.shape].append(weight)
        self.speed = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, share: float) -> None:
        """Move the weights by `share` of the full rate."""
        for shape, group in self.groups.items():
            gradient = torch.stack([w.grad for w in group if w.grad is not None])
            speed = self.speed[shape].lerp_(gradient, 1 - self.momentum)
            change = orthogonal(gradient.lerp(speed, self.momentum))
            scale = self.rate * share * max(1.0, shape[0] / shape[1]) ** 0.5
            for weight, direction in zip(group, change, strict=True):
                weight.mul_(1 - self.rate * share * self.shrink).add_(direction, alpha=-scale)


class Optimiser:
    """Both methods behind one `step`, for the weights it is given and no others."""

    def __init__(self, named: dict[str, nn.Parameter], matrix_rate: float = 0.012, other_rate: float = 3e-3) -> None:
        matrices = {name: weight for name, weight in named.items() if weight.dim() == 2 and "embed" not in name}
        self.muon = Muon(list(matrices.values()), matrix_rate)
        self.other_rate = other_rate
        others = [weight for name, weight in named.items() if name not in matrices]
        self.adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, share: float) -> None:
        """Take one step at `share` of the full rates."""
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * share
        self.adam.step()
        self.muon.step(share)
