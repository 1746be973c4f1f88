"""The rotary embedding of attention modules as one launch, where it can be as part of the write into the cache.

transformers' layers call `apply_rotary_pos_emb` and then the attention function. Where both get the same tensors the
rotation is left to the attention, which rotates and writes at once; a layer that does something in between is noticed
by that (attention.py), in the run of the whole model at load, and rotates by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .attention import Rotation, leave_rotation
from .backends.kernels import ModuleKernels
from .fused_check import ROWS, difference, error_text

if TYPE_CHECKING:
    from .fused import FusedModules

ROTARY = "apply_rotary_pos_emb"


class Ranges:
    """Token numbers 0, 1, 2 ... on a device. Longer ones are made when needed; none is freed: a graph may hold it."""

    def __init__(self) -> None:
        self._made: list[Tensor] = []

    def upto(self, count: int, device: torch.device) -> Tensor:
        """int64 [count]."""
        fitting = [made for made in self._made if len(made) >= count and made.device == device]
        if not fitting:
            fitting = [torch.arange(1 << max(6, (count - 1).bit_length()), device=device)]
            self._made += fitting
        return fitting[0][:count]


def rotates(module: nn.Module) -> bool:
    code = getattr(_plain_forward(module), "__code__", None)
    return hasattr(module, "layer_idx") and code is not None and ROTARY in code.co_names


def _plain_forward(module: nn.Module) -> Any:
    return inspect.unwrap(type(module).forward)


def fuse_rotary(
    fused: FusedModules, name: str, module: nn.Module, kernels: ModuleKernels, ranges: Ranges, like: Tensor
) -> None:
    """The module's own forward with another function under the name that it calls: nothing is patched for others."""
    plain = _plain_forward(module)
    function = plain.__globals__.get(ROTARY)
    if not callable(function):
        fused.refused.append((name, "rotary", "its rotary function is not to be found"))
        return
    rotate = rotary_function(function, kernels, ranges)
    reason = _rotary_differs(module, function, rotate, like)
    why_not = reason or _rotary_differs(module, function, partial(_written, kernels), like)
    if why_not and not reason:
        fused.refused.append((name, "rotary_write", why_not))

    def ours(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        leaves = not why_not and fused.writes and not more and not named and _flat(query, key, cos)
        if leaves and leave_rotation(module, Rotation(query, key, (cos[0], sin[0]))):
            fused.wrote.add(name)
            return query, key
        return rotate(query, key, cos, sin, *more, **named)

    copy = FunctionType(
        plain.__code__, {**plain.__globals__, ROTARY: ours}, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    fused.swap(name, "rotary", module, copy.__get__(module), reason)


def rotary_function(function: Any, kernels: ModuleKernels, ranges: Ranges) -> Callable[..., tuple[Tensor, Tensor]]:
    """transformers' `apply_rotary_pos_emb` for one flat batch: rotates query and key [1, heads, tokens, dim] in place.

    Anything else than that goes to the model's own function.
    """

    def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        if more or named or not _flat(query, key, cos):
            return function(query, key, cos, sin, *more, **named)
        positions = ranges.upto(query.shape[2], query.device)
        rows = query[0].transpose(0, 1), key[0].transpose(0, 1)
        kernels.rotary_embedding(*rows, cos[0], sin[0], positions)
        return query, key

    return rotate


def _flat(query: Tensor, key: Tensor, cos: Tensor) -> bool:
    """Whether these are of one flat batch."""
    return query.shape[0] == 1 and cos.dim() == 3 and cos.shape[0] == 1 and query.dtype == key.dtype


def _written(kernels: ModuleKernels, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Query and key as rotation and write in one leave them, the key read back from a cache of one block."""
    rows, keys = query[0].transpose(0, 1), key[0].transpose(0, 1)
    caches = [key.new_zeros(1, key.shape[1], 16, key.shape[3]) for _ in range(2)]
    slots = torch.arange(len(rows), device=key.device) * 2
    kernels.rotary_reshape_and_cache(rows, keys, keys, cos[0], sin[0], *caches, slots)
    if not torch.equal(caches[1][0, :, slots], key[0]):
        raise ValueError("the kernel writes other values than it is given")
    return query, caches[0][:, :, slots]


def _rotary_differs(module: Any, function: Any, ours: Callable[..., Any], weight: Tensor) -> str:
    """Why `ours` does not rotate as `function`, in the dtype and on the device of `weight`; "" when it does."""
    dim = getattr(module, "head_dim", None)
    if not isinstance(dim, int):
        return "its head dimension is not known"
    part = int(dim * float(getattr(module, "partial_rotary_factor", 1.0) or 1.0))

    generator = torch.Generator(device=weight.device).manual_seed(dim)

    def states(heads: int) -> Tensor:
        made = torch.randn(1, ROWS, heads, dim, dtype=weight.dtype, device=weight.device, generator=generator)
        return made.transpose(1, 2)[..., :part]

    angle = torch.rand(1, ROWS, part // 2, device=weight.device, generator=generator).repeat(1, 1, 2) * 6
    cos, sin = angle.cos().to(weight.dtype), angle.sin().to(weight.dtype)
    query, key = states(4), states(2)
    try:
        expected = function(query, key, cos, sin)
        found = ours(query.clone(), key.clone(), cos, sin)
    except Exception as error:
        return error_text(error)
    return difference(found[0], expected[0]) or difference(found[1], expected[1])
