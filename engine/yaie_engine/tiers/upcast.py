"""Float32 arithmetic on half-precision weights, one module at a time: to tell rounding from a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

LOW = (torch.float16, torch.bfloat16)


@contextmanager
def float32_arithmetic(model: nn.Module) -> Iterator[None]:
    """Within the block every module computes with float32 copies of its own half-precision weights.

    The copies live only while the module runs; the weights themselves are not touched, so they may be shared.
    """
    handles = []
    kept: dict[int, list[dict[str, Any]]] = {}

    def before(module: nn.Module, _: Any) -> None:
        parameters = module._parameters
        kept.setdefault(id(module), []).append(dict(parameters))
        for name, weight in parameters.items():
            if weight is not None and weight.dtype in LOW:
                parameters[name] = nn.Parameter(weight.detach().float(), requires_grad=False)

    def after(module: nn.Module, _: Any, __: Any) -> None:
        module._parameters.update(kept[id(module)].pop())

    try:
        for module in model.modules():
            if module._parameters:
                handles.append(module.register_forward_pre_hook(before))
                handles.append(module.register_forward_hook(after, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
