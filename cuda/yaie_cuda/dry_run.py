"""A launcher that launches nothing and writes down what would have run: how to learn which kernels a model needs."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .kernel import Launcher, Specialisation
from .launch_cache import LaunchCache
from .workspace import Workspace


class DryRun:
    """Looks like `launcher`; results keep whatever their memory held. `specialisations` are in order of first use."""

    def __init__(self, launcher: Launcher) -> None:
        self.name = launcher.name
        self.multiprocessors = launcher.multiprocessors
        self.max_shared_bytes = launcher.max_shared_bytes
        self.prepared = LaunchCache()
        self._workspace = Workspace()
        self._seen: dict[Specialisation, None] = {}

    @property
    def specialisations(self) -> list[Specialisation]:
        return list(self._seen)

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Write it down."""
        self._seen[specialisation] = None

    def workspace(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer whose content is undefined."""
        return self._workspace.take(name, shape, dtype, device)

    def warm_up(self, *_: object) -> None:
        """Nothing to do."""
