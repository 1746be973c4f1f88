"""The forward of a model compiled by torch.compile (TorchDynamo and TorchInductor: Ansel et al., 2024).

Attention and products with packed weights stay what they are (`opaque.py`); between them, norms, rotary embedding,
gates and additions become a few loops in C++. A compiled graph holds for one shape or for a range of them, so every
step is brought into one of three: one row; several rows, all of whose logits are wanted; several rows, some of them.
Each is compiled at load. After that nothing is ever compiled: what does not fit runs eagerly from then on, and a
warning says why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor

from .attention import attention
from .models.packed import PackedLinear
from .opaque import OpaqueFunctions

logger = logging.getLogger("yaie")
Shape = Literal["one row", "several rows", "several rows, some logits"]
Compiler = Callable[[Any, list[Tensor]], Callable[..., Any]]
FEWEST = 2
"""Rows, or wanted logits, from which a graph holds for any number: torch makes graphs of their own for 0 and 1."""


class CompileError(RuntimeError):
    """A graph was asked for after `settle`."""


@dataclass(slots=True)
class Backend:
    """What dynamo hands its graphs to; counts them, and takes none once it is `settled`. Knows nothing of a model."""

    compiler: Compiler
    num_graphs: int = 0
    settled: bool = False

    def __call__(self, graph: Any, inputs: list[Tensor]) -> Callable[..., Any]:
        if self.settled:
            raise CompileError
        self.num_graphs += 1
        return self.compiler(graph, inputs)


class CompiledForward:
    """One model's forward for tier "flat". Made and warmed up at load; `logits` belongs to the engine's thread.

    `failure` says why steps run eagerly, "" while they do not; `compiled` holds the seconds that each shape took.
    """

    def __init__(self, model: Any, picks_rows: bool, compiler: Compiler | None = None) -> None:
        self.failure = ""
        self.compiled: dict[Shape, float] = {}
        self._picks_rows = picks_rows
        self._backend = Backend(compiler or inductor)
        self._opaque = OpaqueFunctions()
        for module in model.modules():
            if isinstance(module, PackedLinear):
                self._opaque.put(module, _product(module))
            elif hasattr(module, "layer_idx"):
                self._opaque.put(module, _attention(module))
        # Dynamo keeps graphs and backend with the code of a function: with one of its own a model does not share their
        # limit, and they go with it.
        own: Any = FunctionType(_forward.__code__.replace(), _forward.__globals__, "forward", None, None)
        self._forward: Callable[..., Tensor] | None = torch.compile(own, fullgraph=True, backend=self._backend)
        self._model = model

    def logits(self, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None) -> Tensor | None:
        """Logits [rows, vocab] of input_ids [1, num_tokens]; `keep` int64 picks rows, None takes all.

        None when it has failed: the step is then to be run eagerly.
        """
        if self._forward is None or self.failure:
            return None
        rows, picked = input_ids.shape[1], None
        if keep is not None and (rows == 1 or not self._picks_rows):
            keep, picked = None, keep
        elif keep is not None and keep.shape[0] < FEWEST:
            picked = torch.arange(keep.shape[0], device=keep.device)
            keep = torch.cat([keep, keep.new_zeros(FEWEST - keep.shape[0])])
        shape: Shape = "one row" if rows == 1 else "several rows" if keep is None else "several rows, some logits"
        if shape not in self.compiled:
            self._mark(input_ids, position_ids, keep)
        before, clock = self.num_graphs, time.monotonic()
        try:
            found = self._forward(self._model, input_ids, position_ids, keep)
        except Exception as error:
            if not isinstance(cause(error), CompileError):
                raise
            self.give_up(f"a step needed a graph that was not made at load ({shape})")
            return None
        if self.num_graphs > before:
            self.compiled[shape] = time.monotonic() - clock
        return found if picked is None else found[picked]

    def give_up(self, why: str) -> None:
        """Run every step eagerly from now on."""
        if not self.failure:
            self.failure = why
            logger.warning("steps run without torch.compile from now on: %s", why)

    @property
    def num_graphs(self) -> int:
        """How many were made."""
        return self._backend.num_graphs

    def settle(self) -> None:
        """Compile nothing from now on."""
        self._backend.settled = True

    def close(self) -> None:
        """Let go of model and graphs. Idempotent."""
        self._opaque.close()
        self._forward = self._model = None

    def __str__(self) -> str:
        if self.failure:
            return f"steps run without torch.compile: {self.failure}"
        seconds = sum(self.compiled.values())
        return f"torch.compile: {self.num_graphs} graphs for any number of rows, made in {seconds:.1f} s"

    @staticmethod
    def _mark(input_ids: Tensor, position_ids: Tensor, keep: Tensor | None) -> None:
        if input_ids.shape[1] > 1:
            for tensor in (input_ids, position_ids):
                torch._dynamo.mark_dynamic(tensor, 1)
        if keep is not None:
            torch._dynamo.mark_dynamic(keep, 0)


OPTIONS = {"cpp.dynamic_threads": True, "compile_threads": 1}
"""Of inductor: loops take the number of threads as it is when they run; no processes stay behind."""


def inductor(graph: Any, inputs: list[Tensor]) -> Callable[..., Any]:
    """Loops in C++, by the compiler that torch finds; what was compiled before is taken from torch's cache."""
    from torch._inductor.compile_fx import compile_fx

    made: Any = compile_fx(graph, inputs, config_patches=dict(OPTIONS))
    return made  # type: ignore[no-any-return]


def _forward(model: Any, input_ids: Tensor, position_ids: Tensor, keep: Tensor | None) -> Tensor:
    """The code that is compiled: a copy for each model."""
    more = {} if keep is None else {"logits_to_keep": keep}
    rows: Tensor = model(input_ids=input_ids, position_ids=position_ids, use_cache=False, **more).logits[0]
    return rows


def cause(error: BaseException) -> BaseException:
    """What a compiler or a backend raised, out of what dynamo wraps it in."""
    inner = getattr(error, "inner_exception", None)
    return cause(inner) if isinstance(inner, BaseException) else error


def _product(module: PackedLinear) -> Callable[[list[Tensor], list[float]], Tensor]:
    return lambda tensors, numbers: module(tensors[0])


def _attention(module: Any) -> Callable[[list[Tensor], list[float]], Tensor]:
    def function(tensors: list[Tensor], numbers: list[float]) -> Tensor:
        scale, window, softcap = numbers
        sinks = tensors[3] if len(tensors) > 3 else None
        query, key, value = tensors[:3]
        return attention(module, query, key, value, None, scale, 0.0, int(window), softcap, sinks)[0]

    return function
