"""Copies of the cache objects in which transformers' models keep their state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

MOST_DEPTH = 6


def tensors_in(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Every tensor inside of a cache object, in an order that copies share."""
    if isinstance(value, Tensor):
        yield value
    elif depth < MOST_DEPTH:
        inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if not inner and hasattr(value, "__dict__") and not isinstance(value, type):
            inner = vars(value).values()
        for item in inner:
            yield from tensors_in(item, depth + 1)


def taken_out(state: object) -> tuple[object, int]:
    """A copy of a state in host memory that shares nothing with it, and its bytes."""
    made = _copied(state, lambda tensor: tensor.to("cpu", copy=True))
    return made, sum(tensor.nbytes for tensor in tensors_in(made))


def put_back(state: object, device: torch.device) -> object:
    """A copy of what `taken_out` gave, for a model on `device`."""
    return _copied(state, lambda tensor: tensor.to(device, copy=True))


def is_sound(state: object) -> bool:
    """Whether every number is finite: what a broken step has left must not be kept."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors_in(state))


def _copied(state: object, convert: Callable[[Tensor], Tensor]) -> object:
    """A deep copy in which each tensor is what `convert` makes of it; not its storage, of which it may be a part."""
    memo: dict[int, object] = {id(tensor): convert(tensor) for tensor in tensors_in(state)}
    return copy.deepcopy(state, memo)
