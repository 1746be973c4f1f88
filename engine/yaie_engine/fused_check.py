"""Whether a fused module gives what the module gave: on random inputs, within one rounding of the model's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ROWS = 5
"""Rows of the random inputs of a check."""


def module_result(module: Any, width: int) -> tuple[Tensor, Tensor]:
    """The module's own result on random rows [1, ROWS, width], and these rows."""
    weight = next(module.parameters())
    generator = torch.Generator(device=weight.device).manual_seed(width)
    rows = torch.randn(1, ROWS, width, dtype=torch.float32, device=weight.device, generator=generator)
    rows = rows.to(weight.dtype)
    expected: Tensor = module(rows)
    return expected, rows


def differs(module: Any, forward: Callable[[Tensor], Tensor], width: int) -> str:
    try:
        expected, rows = module_result(module, width)
    except Exception as error:
        return error_text(error)
    return difference(attempt(forward, rows), expected)


def attempt(forward: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor | str:
    try:
        return forward(rows)
    except Exception as error:  # the kernel refuses the shape or does not compile
        return error_text(error)


def difference(found: Tensor | str, expected: Tensor) -> str:
    """Why `found` is not `expected` within one rounding of its dtype; "" when it is."""
    if isinstance(found, str):
        return found
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"the kernel gives {found.dtype} {list(found.shape)}"
    if torch.equal(found, expected):
        return ""
    half_ulp = torch.finfo(expected.dtype).eps / 2
    off, size = (found.double() - expected.double()).abs(), expected.double().square().mean().sqrt()
    error = float((off.square().mean().sqrt() / size).nan_to_num(nan=torch.inf))
    if error <= half_ulp and float(off.max()) <= 8 * half_ulp * float(expected.double().abs().max()):
        return ""
    return f"the kernel's result is off by {error:.1e} of its size, allowed are {half_ulp:.1e}"


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
