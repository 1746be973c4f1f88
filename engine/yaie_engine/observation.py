"""Looking at a model's forward while it runs, by hooks on its modules: what each takes and gives, whose each row is.

The hooks are there only while somebody looks, so that an engine nobody looks at pays nothing. They change no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from .errors import YaieError
from .kv_cache import KVCache
from .models.joined import JoinedLinear
from .plan import ScheduledSequence
from .residual import ResidualStream


@dataclass(frozen=True, slots=True)
class ForwardRows:
    """The tokens of one forward: those of `entries` end to end, entry i from row `starts[i]` on.

    `kept` are the rows whose logits are wanted; `cache` is what the forward reads and writes.
    """

    step: int
    entries: Sequence[ScheduledSequence]
    starts: Sequence[int]
    kept: Sequence[int]
    cache: KVCache

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.entries)


@dataclass(frozen=True, slots=True)
class ModulePlace:
    """A module of a model: its path, the path of the module around it, and whether it is a layer.

    `is_layer`: it is one of the blocks that a model is a stack of, `layer` the number of the one that it is or lies in.
    `outside`: it lies in none and holds none. `depth` counts the modules around it within its layer. `attention` is the
    number under which it keeps K and V, or None.
    """

    name: str
    parent: str
    is_layer: bool
    layer: int | None
    depth: int
    outside: bool
    is_head: bool
    attention: int | None


class Observer(Protocol):
    """Who looks. `begin` and `end` stand around a forward; between them modules are entered and left, inner ones last
    and first. The tensors are the model's own: they may only be read, and only during the call.

    Who is `done` after a step is taken off: no later forward is shown to it, or slowed down for it.
    """

    @property
    def done(self) -> bool:
        """Whether it has seen all that it wants to see."""

    def begin(self, rows: ForwardRows, places: dict[str, ModulePlace]) -> None:
        """A forward begins."""

    def enter(self, place: ModulePlace, given: Tensor | None) -> None:
        """A module is called; `given` is the first tensor that it gets."""

    def leave(self, place: ModulePlace, output: Tensor | None) -> None:
        """It is done; `output` is the first tensor that it gives."""

    def end(self, logits: Tensor) -> dict[int, YaieError]:
        """The forward gave `logits` [len(kept), vocab]; the sequences (ids) whose request must fail, and why."""


class Observation:
    """The hooks on one model, for those who look at it."""

    def __init__(self, model: nn.Module, observers: Sequence[Observer]) -> None:
        self.places = places_of(model)
        self._observers = tuple(observers)
        self._active = False
        modules = dict(model.named_modules())
        self._handles = [handle for name, place in self.places.items() for handle in self._hook(modules[name], place)]

    def begin(self, rows: ForwardRows) -> None:
        """A forward begins."""
        self._active = True
        for observer in self._observers:
            observer.begin(rows, self.places)

    def end(self, logits: Tensor) -> dict[int, YaieError]:
        """The forward is done; what was found, by sequence id."""
        self._active = False
        found: dict[int, YaieError] = {}
        for observer in self._observers:
            found = {**observer.end(logits), **found}
        return found

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, module: nn.Module, place: ModulePlace) -> Iterator[Any]:
        yield module.register_forward_pre_hook(partial(self._enter, place), with_kwargs=True)
        yield module.register_forward_hook(partial(self._leave, place))

    def _enter(self, place: ModulePlace, module: nn.Module, args: Any, named: dict[str, Any]) -> None:
        if self._active:
            given = first_tensor((args, named))
            for observer in self._observers:
                observer.enter(place, given)

    def _leave(self, place: ModulePlace, module: nn.Module, args: Any, output: Any) -> None:
        if self._active:
            result = first_tensor(output)
            for observer in self._observers:
                observer.leave(place, result)


def places_of(model: nn.Module) -> dict[str, ModulePlace]:
    """The modules of a model that are called by themselves, in the order in which it holds them.

    What joins several layers is none of its own: each of those layers shows its own part of the product.
    """
    joint = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, JoinedLinear))
    stacks = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    stacks = [name for name in stacks if not any(name.startswith(f"{other}.") for other in stacks)]
    head = getattr(model, "get_output_embeddings", lambda: None)()
    places = {}
    for name, module in model.named_modules():
        if not name or isinstance(module, nn.ModuleList | nn.ModuleDict) or f"{name}.".startswith(joint):
            continue
        parent = name.rpartition(".")[0]
        number = getattr(module, "layer_idx", None)
        stack = next((stack for stack in stacks if name.startswith(f"{stack}.")), None)
        path = name.removeprefix(f"{stack}.").split(".") if stack is not None else []
        around = any(stack.startswith(f"{name}.") for stack in stacks)
        attends = isinstance(number, int) and any(word in type(module).__name__ for word in ("Attention", "Attn"))
        places[name] = ModulePlace(
            name=name,
            parent=parent,
            is_layer=parent in stacks,
            layer=int(path[0]) if path else None,
            depth=max(0, len(path) - 1),
            outside=not path and not around,
            is_head=module is head,
            attention=number if attends else None,
        )
    return places


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor of numbers with a fraction in what a module takes or gives; hidden states come first."""
    if isinstance(value, ResidualStream):
        return value.peek()
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    return next((found for each in value if (found := first_tensor(each)) is not None), None)
