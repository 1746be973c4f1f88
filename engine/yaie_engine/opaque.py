"""Functions that a compiled forward calls as they are: attention over the paged cache, products with packed weights.

torch.compile traces what it compiles, and neither can be traced: they read what no graph holds. As vLLM does with its
attention, the graph has one operation in their place, which finds the function by a number. An operation takes tensors
and numbers alone, hence the table.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

NAME = "yaie_opaque"
Function = Callable[[list[Tensor], list[float]], Tensor]
_FUNCTIONS: dict[int, Function] = {}
_NUMBERS = itertools.count()


class OpaqueFunctions:
    """The functions of one model's modules, until `close` or until this object is gone: they keep the model alive."""

    def __init__(self) -> None:
        _library()
        self._modules: list[nn.Module] = []
        self._numbers: list[int] = []
        self._end = weakref.finalize(self, _forget, self._numbers)

    def put(self, module: nn.Module, function: Function) -> None:
        """While `module` is compiled, `call` stands for `function`."""
        number = next(_NUMBERS)
        _FUNCTIONS[number] = function
        object.__setattr__(module, NAME, number)
        self._modules.append(module)
        self._numbers.append(number)

    def close(self) -> None:
        """Forget them. Idempotent."""
        for module in self._modules:
            module.__dict__.pop(NAME, None)
        self._modules.clear()
        self._end()


def is_opaque(module: nn.Module) -> bool:
    """Whether `module` is being compiled, and `call` is to stand for it."""
    return torch.compiler.is_compiling() and getattr(module, NAME, None) is not None


def call(module: nn.Module, tensors: Sequence[Tensor], numbers: Sequence[float], shape: Sequence[Any]) -> Tensor:
    """What the function of `module` makes of them: a tensor of this shape, of the dtype of the first one."""
    number: int = getattr(module, NAME)
    result: Tensor = torch.ops.yaie_engine.call(list(tensors), list(numbers), number, list(shape))
    return result


def _forget(numbers: list[int]) -> None:
    for number in numbers:
        _FUNCTIONS.pop(number, None)


@cache
def _library() -> torch.library.Library:
    """Defined once, when something is to be compiled."""
    library = torch.library.Library("yaie_engine", "DEF")
    library.define("call(Tensor[] tensors, float[] numbers, int function, SymInt[] shape) -> Tensor")
    library.impl("call", _call, "CompositeExplicitAutograd")
    torch.library.register_fake("yaie_engine::call", _fake, lib=library)
    return library


def _call(tensors: list[Tensor], numbers: list[float], function: int, shape: list[int]) -> Tensor:
    return _FUNCTIONS[function](tensors, numbers)


def _fake(tensors: list[Tensor], numbers: list[float], function: int, shape: list[Any]) -> Tensor:
    return tensors[0].new_empty(shape)
