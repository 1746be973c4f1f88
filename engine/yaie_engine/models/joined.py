"""Linear layers that take the same input as one product: query, key and value; gate and up (vLLM's merged layers).

A model's code stays as it is and calls one layer after the other. The first call with a tensor makes the product of
all; the others find their part when they are called with that very tensor, and make the product anew with any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from .quantized import NAME, Int8Weight, int8_weight

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"), ("query", "key", "value"))
"""Names under which one module has layers that take the same input, in the order of their calls."""


class JoinedLinear(nn.Module):
    """One linear layer in the place of several: `product` gives [..., sum of `sizes`]. Its parts are `PartLinear`s."""

    def __init__(self, product: nn.Module, sizes: Sequence[int]) -> None:
        super().__init__()
        self.product = product
        self.sizes = list(sizes)
        self._made: tuple[Tensor, dict[int, Tensor]] | None = None  # one value, so that two threads never mix theirs

    def part(self, index: int, rows: Tensor) -> Tensor:
        """The result [..., sizes[index]] of one layer, a view; nothing is kept once all have had theirs."""
        made = self._made
        found = made[1].pop(index, None) if made is not None and made[0] is rows else None
        if found is None:
            made = (rows, dict(enumerate(self.product(rows).split(self.sizes, -1))))
            found = made[1].pop(index)
            self._made = made
        if made is not None and not made[1] and self._made is made:
            self._made = None
        return found

    def forget(self) -> None:
        """Drop what nobody came for."""
        self._made = None


class PartLinear(nn.Module):
    """Stands where the layer of number `index` stood."""

    def __init__(self, joined: JoinedLinear, index: int, like: nn.Linear) -> None:
        super().__init__()
        self.joined, self.index = joined, index
        self.in_features, self.out_features = like.in_features, like.out_features

    def is_followed_by(self, other: PartLinear) -> bool:
        """Whether this one and `other` are all that their product gives, in this order."""
        return self.joined is other.joined and (self.index, other.index) == (0, 1) and len(self.joined.sizes) == 2

    def forward(self, rows: Tensor) -> Tensor:
        """rows [..., in_features] to [..., out_features]."""
        return self.joined.part(self.index, rows)


def siblings(parent: nn.Module) -> Iterator[dict[str, nn.Linear]]:
    """The groups of layers of `parent` that can be one: all plain, of one width and dtype, all or none with a bias."""
    for names in SIBLINGS:
        group = {name: child for name in names if type(child := parent._modules.get(name)) is nn.Linear}
        if len(group) < len(names):
            continue
        shapes = {(one.in_features, one.bias is None, one.weight.dtype) for one in group.values()}
        if len(shapes) == 1:
            yield group


def joined(group: Sequence[nn.Linear]) -> nn.Linear:
    """A layer with the weights of all, copied."""
    first, rows = group[0], sum(one.out_features for one in group)
    whole = nn.Linear(first.in_features, rows, first.bias is not None, device="meta", dtype=first.weight.dtype)
    whole.weight = nn.Parameter(torch.cat([one.weight.detach() for one in group]), requires_grad=False)
    if first.bias is not None:
        whole.bias = nn.Parameter(torch.cat([one.bias.detach() for one in group]), requires_grad=False)
    quantized = [part for one in group if (part := int8_weight(one)) is not None]
    if len(quantized) == len(group):
        object.__setattr__(whole, NAME, Int8Weight.joined(quantized))
    return whole
