"""Linear layers in a memory layout that is read fastest: on a CPU a decode step is bound by streaming weights.

Where the CPU kernels run and beat torch's product, the layout is theirs, else it is oneDNN's. Its ops are private to
torch, so nothing depends on them: each layer checks itself against the plain product, the probe checks the whole model
once more, and where either fails the plain layers stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yaie_cuda.cpu.kernels import CpuKernels
from yaie_engine.opaque import call, is_opaque

from .joined import JoinedLinear, PartLinear, joined, siblings
from .quantized import SMALLEST, int8_weight

ROWS = 32  # the number of rows that the layout is chosen for; it serves any number
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class PackedLinear(nn.Module):
    """The product of an `nn.Linear`, from a packed copy of its weight [out_features, in_features].

    With `kernels` the layout is that of the CPU kernels, where they multiply by such a weight; else it is oneDNN's.
    """

    def __init__(self, linear: nn.Linear, kernels: CpuKernels | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = linear.weight.dtype  # of rows and results
        self.scales: Tensor | None = None
        self.packed, self._kernels = self._laid_out(linear, kernels)
        bias: Tensor | None = linear.bias
        self.bias = None if bias is None else bias.detach().contiguous()

    def _laid_out(self, linear: nn.Linear, kernels: CpuKernels | None) -> tuple[Tensor, CpuKernels | None]:
        weight, quantized = linear.weight.detach(), int8_weight(linear)
        if kernels is not None and quantized is not None:
            packed, self.scales = kernels.pack_int8(quantized.values, quantized.scales)
            return packed, kernels
        panels = kernels.pack(weight) if kernels is not None else None
        return (_onednn(weight), None) if panels is None else (panels, kernels)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weight, which is no parameter of a model."""
        return self.packed.numel() * self.packed.element_size() + (0 if self.scales is None else self.scales.nbytes)

    def forward(self, rows: Tensor) -> Tensor:
        """rows [..., in_features] to [..., out_features]."""
        if is_opaque(self):
            return call(self, [rows], [], (*rows.shape[:-1], self.out_features))
        if self._kernels is not None and self.scales is not None:
            return self._kernels.linear_int8(rows, self.packed, self.scales, self.bias, self.out_features)
        if self._kernels is not None:
            return self._kernels.linear(rows, self.packed, self.bias, self.out_features)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return product


class Packing:
    """The layers of one model that were replaced; `undo` puts the plain ones back until `keep` lets them go."""

    def __init__(self) -> None:
        self._plain: list[tuple[nn.Module, str, nn.Linear]] = []

    def __len__(self) -> int:
        return len(self._plain)

    def replace(self, parent: nn.Module, name: str, linear: nn.Linear, packed: PackedLinear | PartLinear) -> None:
        """Put `packed` in the place of `linear`."""
        self._plain.append((parent, name, linear))
        setattr(parent, name, packed)

    def undo(self) -> None:
        """Put every plain layer back."""
        for parent, name, linear in self._plain:
            setattr(parent, name, linear)
        self._plain.clear()

    def keep(self) -> None:
        """Let go of the plain layers and their weights."""
        self._plain.clear()


def pack_linears(
    model: Any, kernels: CpuKernels | None = None, share: Callable[[float], None] = lambda _: None
) -> Packing:
    """Replace the large linear layers of a model on the CPU that is ours alone; none where the CPU or torch cannot.

    `share` hears how much of the model is done.
    """
    packing = Packing()
    if not _supported(next(model.parameters()).dtype):
        return packing
    try:
        with torch.inference_mode():
            parents = list(model.modules())
            for place, parent in enumerate(parents):
                share(place / len(parents))
                for group in _groups(parent):
                    if not all(_put(packing, parent, name, *pair) for name, pair in _packed(group, kernels).items()):
                        packing.undo()
                        return packing
    finally:
        if kernels is not None:
            kernels.packed()
    return packing


def _groups(parent: nn.Module) -> Iterator[dict[str, nn.Linear]]:
    """The layers of `parent` that are worth it: those that become one product together, each other by itself."""
    large = {
        name: child
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child.weight.numel() >= SMALLEST and not _hooked(child)
    }
    for group in siblings(parent):
        if group.keys() <= large.keys():
            yield {name: large.pop(name) for name in group}
    for name, child in large.items():
        yield {name: child}


def _onednn(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    return packed


def _packed(
    group: dict[str, nn.Linear], kernels: CpuKernels | None
) -> dict[str, tuple[nn.Linear, PackedLinear | PartLinear]]:
    """Each layer of the group and what stands for it."""
    linears = list(group.values())
    if len(linears) == 1:
        return {name: (linear, PackedLinear(linear, kernels)) for name, linear in group.items()}
    whole = JoinedLinear(PackedLinear(joined(linears), kernels), [linear.out_features for linear in linears])
    return {name: (linear, PartLinear(whole, index, linear)) for index, (name, linear) in enumerate(group.items())}


def _put(packing: Packing, parent: nn.Module, name: str, linear: nn.Linear, packed: PackedLinear | PartLinear) -> bool:
    if not _equal(linear, packed):
        return False
    if isinstance(packed, PartLinear):
        packed.joined.forget()
    packing.replace(parent, name, linear, packed)
    return True


def _supported(dtype: torch.dtype) -> bool:
    ops = torch.ops.mkldnn
    if dtype not in BOUND or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(ops, "_linear_pointwise") or not hasattr(ops, "_reorder_linear_weight"):
        return False
    return dtype == torch.float32 or bool(ops._is_mkldnn_bf16_supported())


def _hooked(linear: nn.Linear) -> bool:
    return bool(linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear))


def _equal(linear: nn.Linear, packed: PackedLinear | PartLinear) -> bool:
    """One row and several rows, within rounding."""
    weight = linear.weight
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(5, linear.in_features, generator=draw).to(weight.dtype)
    expected = F.linear(rows, weight, linear.bias).float()
    bound = BOUND[weight.dtype] * float(expected.std().clamp_min(1e-6)) * 4
    return all(
        float((packed(part).float() - want).abs().max()) <= bound
        for part, want in ((rows, expected), (rows[:1], expected[:1]))
    )
