"""RMSNorm on a CPU in fewer passes over the hidden states: `x * x` for torch's slow power, and work in place.

As in fused.py, a norm is swapped only where it gives what the module's own forward gives on random rows, and the run of
the whole model at load decides in the end. Which of the known forms a module has is found by trying them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .fused import FusedModules, eps_of, is_rms_norm
from .fused_check import HOOKED, differs, hooked

Scale = Callable[[Tensor, Tensor, torch.dtype], Tensor]
"""Normed hidden states in float32, which may be written, the weight and the dtype of the result."""


def _after_rounding(normed: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Llama, Qwen, Mistral: rounded to the model's dtype, then scaled."""
    return weight * normed if normed.dtype == dtype else normed.to(dtype).mul_(weight)


def _before_rounding(normed: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """OLMo 2 and others: scaled in float32."""
    return normed.mul_(weight).to(dtype)


def _one_plus(normed: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Gemma: the weight is the distance from one."""
    return normed.mul_(1.0 + weight.float()).to(dtype)


SCALES: tuple[Scale, ...] = (_after_rounding, _before_rounding, _one_plus)


def fuse_norms(model: nn.Module, fused: FusedModules | None = None) -> FusedModules:
    """Swap what passes its check; `restore` takes all of it back.

    What kernels have `fused` before stays, and what they refused is tried.
    """
    fused = fused or FusedModules()
    with torch.inference_mode():
        for name, module in model.named_modules():
            if is_rms_norm(module) and "forward" not in module.__dict__:
                fused.refused = [one for one in fused.refused if one[:2] != (name, "rms_norm")]
                _fuse_norm(fused, name, module)
    return fused


def _fuse_norm(fused: FusedModules, name: str, module: Any) -> None:
    eps = eps_of(module)
    if eps is None or hooked(module.modules()):
        reason = HOOKED if eps is not None else "its epsilon is not known"
        fused.swap(name, "rms_norm", module, module.forward, reason)
        return
    forwards = [norm_forward(module, eps, scale) for scale in SCALES]
    reasons = [differs(module, forward, module.weight) for forward in forwards]
    chosen = reasons.index("") if "" in reasons else 0
    fused.swap(name, "rms_norm", module, forwards[chosen], reasons[chosen])


def norm_forward(module: Any, eps: float, scale: Scale) -> Callable[[Tensor], Tensor]:
    """The norm [.., hidden] to [.., hidden]; other dtypes than the weight's go the module's own way."""
    plain = module.forward

    def forward(hidden: Tensor) -> Tensor:
        weight: Tensor = module.weight
        if hidden.dtype != weight.dtype:
            result: Tensor = plain(hidden)
            return result
        wide = hidden.float()
        root = (wide * wide).mean(-1, keepdim=True).add_(eps).rsqrt_()
        normed = wide * root if wide is hidden else wide.mul_(root)  # a float32 input belongs to the caller
        return scale(normed, weight, hidden.dtype)

    return forward
