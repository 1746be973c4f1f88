"""Copies of the cache objects in which transformers' models keep their state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

MOST_DEPTH = 6


def leaves_in(value: object, place: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Everything inside of a cache object with its place, such as "layers.0.keys", in an order that copies share.

    Tensors, plain values, and the classes of what they are in.
    """
    inner = _inside(value, depth)
    if inner is None:
        yield place, value
        return
    yield place, type(value)
    for name, item in inner:
        yield from leaves_in(item, f"{place}.{name}" if place else str(name), depth + 1)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor inside of a cache object, in an order that copies share."""
    return (leaf for _, leaf in leaves_in(value) if isinstance(leaf, Tensor))


def taken_out(state: object) -> tuple[object, int]:
    """A copy of a state in host memory that shares nothing with it, and its bytes."""
    made = _copied(state, lambda tensor: tensor.to("cpu", copy=True))
    return made, sum(tensor.nbytes for tensor in tensors_in(made))


def rebuilt(skeleton: object, tensors: Iterable[Tensor]) -> object:
    """A copy of a state with these tensors in the places of its own."""
    mine = list(tensors_in(skeleton))
    return copy.deepcopy(skeleton, {id(old): new for old, new in zip(mine, tensors, strict=True)})


def put_number(state: object, place: str, number: int) -> None:
    """Put a number where `leaves_in` says that one is; TypeError where nothing can be put."""
    found = [(holder, key) for at, holder, key in _holders(state) if at == place]
    if len(found) != 1:
        raise TypeError(f"{place}: {len(found)} things are called so")
    holder, key = found[0]
    if isinstance(holder, dict | list):
        holder[key] = number
    elif hasattr(holder, "__dict__"):
        setattr(holder, key, number)
    else:
        raise TypeError(f"{place}: nothing can be put into a {type(holder).__name__}")


def _holders(value: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, Any, Any]]:
    """The place of each thing inside of a cache object, what holds it, and under which name there."""
    for name, item in _inside(value, depth) or ():
        at = f"{place}.{name}" if place else str(name)
        yield at, value, name
        yield from _holders(item, at, depth + 1)


def _inside(value: Any, depth: int) -> Iterable[tuple[Any, Any]] | None:
    """What is inside of a thing by its names; None where nothing is."""
    if depth >= MOST_DEPTH or isinstance(value, Tensor | type):
        return None
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    return vars(value).items() if hasattr(value, "__dict__") else None


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
