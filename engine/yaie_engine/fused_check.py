"""Whether a fused module gives what the module gave: on random inputs, within one rounding of the model's dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 5
"""Rows of the random inputs of a check."""
SCALES = (1e-3, 1.0, 1.0, 1e2, 1e4)
"""Sizes of these rows: small ones show an epsilon, large ones a limit."""
HOOKED = "it has hooks"


def hooked(modules: Iterable[nn.Module]) -> bool:
    """Whether somebody listens to one of these modules, or has replaced its forward: it may not be left out."""
    return any(one._forward_hooks or one._forward_pre_hooks or "forward" in vars(one) for one in modules)


def module_result(module: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The module's own result on random rows [1, ROWS, width] for `weight` [.., width], and these rows."""
    width = weight.shape[-1]
    generator = torch.Generator(device=weight.device).manual_seed(width)
    rows = torch.randn(1, ROWS, width, dtype=torch.float32, device=weight.device, generator=generator)
    rows = (rows * rows.new_tensor(SCALES).unsqueeze(1)).to(weight.dtype)
    expected: Tensor = module(rows)
    return expected, rows


def differs(module: Any, forward: Callable[[Tensor], Tensor], weight: Tensor) -> str:
    """Why `forward` does not give what the module gives on rows for `weight`; "" when it does."""
    try:
        expected, rows = module_result(module, weight)
    except Exception as error:
        return error_text(error)
    return difference(attempt(forward, rows), expected)


def attempt(forward: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor | str:
    try:
        return forward(rows)
    except Exception as error:  # the kernel refuses the shape or does not compile
        return error_text(error)


def difference(found: Tensor | str, expected: Tensor) -> str:
    """Why `found` is not `expected` within one rounding of its dtype, each row by its size; "" when it is.

    In half precision that is half an ulp; in float32, where both round at every step of their arithmetic, a whole one.
    Rows that overflow in `expected` prove nothing. Below the normal numbers a rounding is no share of a value: rows
    smaller than 16 of the smallest are held to what is allowed at that size.
    """
    if isinstance(found, str):
        return found
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"the kernel gives {found.dtype} {list(found.shape)}"
    if torch.equal(found, expected):
        return ""
    limits = torch.finfo(expected.dtype)
    allowed, least = limits.eps if expected.dtype == torch.float32 else limits.eps / 2, 16 * limits.tiny
    finite = expected.isfinite().all(-1)
    ours, plain = found[finite].double(), expected[finite].double()
    off = (ours - plain).abs().nan_to_num(nan=torch.inf)
    size = plain.square().mean(-1, keepdim=True).sqrt().clamp_min(least)
    error = float((off / size).square().mean().sqrt())
    largest = plain.abs().amax(-1, keepdim=True).clamp_min(least)
    if error <= allowed and bool((off <= 8 * allowed * largest).all()):
        return ""
    return f"the kernel's result is off by {error:.1e} of its size, allowed are {allowed:.1e}"


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
