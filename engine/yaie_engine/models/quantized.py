"""Weights of whole numbers: int8 with one scale for each output, for the CPU kernels.

Only weights are quantized: rows and sums stay as they are (weight-only W8A16, as in vLLM and LLM.int8: Dettmers et al.,
2022). A decode step on a CPU reads every weight once, so that half the bytes are nearly half the time.

The model gets the values that its whole numbers stand for before anything else looks at it: the probe, the checks of
every layer and the fingerprint of cached KV are then about the very model that is served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 127
SMALLEST = 2**14
"""Numbers of a weight below which neither halving nor packing it saves anything that could be seen."""
NAME = "int8_weight"


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """`values` int8 [out_features, in_features], -127 to 127; `scales` float32 [out_features]."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        """The nearest whole numbers, symmetric about 0. A row of zeros has scale 0; what is not finite stays so."""
        wide = weight.float()
        scales = wide.abs().amax(1) / LARGEST
        shares = (wide / scales.unsqueeze(1)).nan_to_num_(0.0).round_().clamp_(-LARGEST, LARGEST)
        return cls(shares.to(torch.int8), scales)

    @classmethod
    def joined(cls, parts: Sequence[Int8Weight]) -> Int8Weight:
        """The rows of all."""
        return cls(torch.cat([part.values for part in parts]), torch.cat([part.scales for part in parts]))

    def plain(self, dtype: torch.dtype) -> Tensor:
        """The weight that they stand for, [out_features, in_features]."""
        return (self.values.float() * self.scales.unsqueeze(1)).to(dtype)


def quantize_linears(model: nn.Module, share: Callable[[float], None] = lambda _: None) -> int:
    """Give every large linear layer the values of its whole numbers, which it keeps beside them. Returns how many.

    A weight that is the embedding, too, stays what it is there. `share` hears how much of them is done.
    """
    large = [each for each in model.modules() if type(each) is nn.Linear and each.weight.numel() >= SMALLEST]
    with torch.inference_mode():
        for place, module in enumerate(large):
            share(place / len(large))
            quantized = Int8Weight.of(module.weight)
            plain = quantized.plain(module.weight.dtype)
            module.weight = nn.Parameter(plain, requires_grad=False)
            object.__setattr__(module, NAME, quantized)
    return len(large)


def int8_weight(linear: Any) -> Int8Weight | None:
    """What `quantize_linears` left beside the weight of `linear`."""
    found: Int8Weight | None = vars(linear).get(NAME)
    return found
