"""Whether a model is made of what it was made of: somebody in a notebook may put another layer or weight in its place.

Recorded steps, and modules that run as kernels, hold the weights that they were made with. Numbers that are written
into a weight are theirs, too; another tensor, another module, or other memory under a tensor is not. What was cached is
of neither: torch counts how often somebody wrote into a tensor, but not what went by its `.data`. torch would tell
of most changes by its hooks for registrations, but a hook there makes every compiled model of the process compile anew.
"""

from __future__ import annotations

from itertools import chain, cycle
from operator import attrgetter, is_not
from typing import Any

from torch import Tensor, nn

KINDS = (Tensor, nn.Parameter, nn.Buffer)
_version = attrgetter("_version")
SHARES = 16
"""In so many turns a `glance` has seen all."""


class Share:
    """Some modules, and the tables in which they hold their parts, as they are when this is made."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = modules
        self._tables = [table for module in modules for table in _tables(module)]
        self._seen = self._now()
        self._tensors = [part for part in self._seen if type(part) in KINDS]
        self._addresses = [*map(Tensor.data_ptr, self._tensors)]
        self._counted = [part for part in self._tensors if type(part) is nn.Parameter and not part.is_inference()]
        self._versions = [*map(_version, self._counted)]

    def written(self) -> bool:
        """Whether numbers were written into a parameter since this was asked last."""
        before, self._versions = self._versions, [*map(_version, self._counted)]
        return before != self._versions

    @property
    def replaced(self) -> bool:
        """Whether a part is another object by now, one came or went, or a module has another `forward`."""
        now = self._now()
        return len(now) != len(self._seen) or any(map(is_not, now, self._seen))

    @property
    def moved(self) -> bool:
        """Whether a tensor has other memory by now."""
        return [*map(Tensor.data_ptr, self._tensors)] != self._addresses

    def _now(self) -> list[Any]:
        forwards = (vars(module).get("forward") for module in self._modules)
        return [*chain.from_iterable(map(dict.values, self._tables)), *forwards]


class Parts:
    """The submodules, parameters and buffers of `model` as they are when this is made.

    To look through all takes some tens of microseconds for a model of 100M, a `glance` a few.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._shares = [Share(modules[number::SHARES]) for number in range(min(SHARES, len(modules)))]
        self._turns = cycle(self._shares)

    def glance(self) -> bool:
        """Whether something has changed in the share whose turn it is."""
        share = next(self._turns, None)
        return share is not None and (share.replaced or share.moved)

    def written(self) -> bool:
        """Whether numbers were written into any parameter since this was asked last."""
        return sum(share.written() for share in self._shares) > 0

    @property
    def replaced(self) -> bool:
        """Whether any part is another object by now."""
        return any(share.replaced for share in self._shares)

    @property
    def changed(self) -> bool:
        """Whether any part is another object, or has other memory, by now."""
        return any(share.replaced or share.moved for share in self._shares)


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return module._modules, module._parameters, module._buffers
