"""Checks that the ops share: shapes, dtypes and strides, and how wide an access memory allows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SCALARS = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}


class UnservedError(ValueError):
    """No kernel takes these arguments, which are right: the reference does."""


def check_shape(name: str, tensor: Tensor, shape: Sequence[int | str]) -> None:
    """Raise ValueError unless `tensor` has `shape`; a word in it allows any size."""
    if tensor.dim() != len(shape) or any(
        isinstance(want, int) and have != want for have, want in zip(tensor.shape, shape, strict=True)
    ):
        wanted = ", ".join(map(str, shape))
        raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{wanted}]")


def check_index(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int | str]) -> None:
    """Raise ValueError unless `tensor` has `dtype` and `shape`, UnservedError unless it is contiguous."""
    check_shape(name, tensor, shape)
    if tensor.dtype != dtype:
        raise ValueError(f"{name} is {_name(tensor.dtype)}, expected {_name(dtype)}")
    if not tensor.is_contiguous():
        refuse(f"{name} is not contiguous: strides {list(tensor.stride())} of shape {list(tensor.shape)}")


def refuse(reason: str) -> None:
    """Raise UnservedError with `reason`, if there is one."""
    if reason:
        raise UnservedError(reason)


def unlike(name: str, tensor: Tensor, dtype: torch.dtype, like: str) -> str:
    """Why `tensor` cannot go with `like` of `dtype`; "" when it can."""
    return "" if tensor.dtype == dtype else f"{name} is {_name(tensor.dtype)} and {like} is {_name(dtype)}"


def unknown_scalar(name: str, tensor: Tensor) -> str:
    """Why no kernel computes with `tensor`; "" when one does."""
    if tensor.dtype in SCALARS:
        return ""
    return f"{name} is {_name(tensor.dtype)}; kernels take {', '.join(SCALARS.values())}"


def scattered(name: str, tensor: Tensor) -> str:
    """Why the last dimension of `tensor` cannot be read in one run; "" when it can."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return f"the last dimension of {name} has stride {tensor.stride(-1)}, expected 1"
    return ""


def not_contiguous(**tensors: Tensor | None) -> str:
    """Which of these is not one run in memory; "" when all are. What is None is left out."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            return f"{name} is not contiguous: strides {list(tensor.stride())} of shape {list(tensor.shape)}"
    return ""


def row_stride(tensor: Tensor) -> int | None:
    """The one stride between the rows of `tensor` [..., n], all leading dimensions taken together; None: there is none.

    The last dimension must be a run in memory too.
    """
    if scattered("", tensor):
        return None
    found: int | None = None
    following = 0
    for size, stride in zip(reversed(tensor.shape[:-1]), reversed(tensor.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if found is None:
            found = stride
        elif stride != following:
            return None
        following = stride * size
    return found or 0


def no_rows(name: str, tensor: Tensor) -> str:
    """Why `tensor` [..., n] is not rows at one distance; "" when it is."""
    if row_stride(tensor) is None:
        return (
            f"{name} has strides {list(tensor.stride())} of shape {list(tensor.shape)}; its rows lie at no one distance"
        )
    return ""


def access_width(most: int, counts: Sequence[int], tensors: Sequence[Tensor]) -> int:
    """The widest access, in elements: the largest power of two up to `most` that divides `counts` and all addresses."""
    for tensor in tensors:
        most = math.gcd(most, tensor.data_ptr() // tensor.element_size())
    return math.gcd(most, *counts)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
