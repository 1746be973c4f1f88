"""Hooks that somebody put on a model's modules: a replayed step calls no module and would pass them by in silence."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as every_module


class Hooks:
    """Those of all modules of `model` or of every module there is, also the ones that come later. True while any is."""

    def __init__(self, model: nn.Module) -> None:
        self._tables: list[dict[int, Any]] = [
            every_module._global_forward_hooks,
            every_module._global_forward_pre_hooks,
        ]
        for module in model.modules():
            self._tables += (module._forward_hooks, module._forward_pre_hooks)

    def __bool__(self) -> bool:
        return any(self._tables)
