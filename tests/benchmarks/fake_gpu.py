"""A device on which every call takes the time it is told to: units, shares and targets then have exact values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yaie_cuda.kernel import Specialisation
from yaie_cuda.launch_cache import LaunchCache


@dataclass(eq=False)
class SilentLauncher:
    """Launches nothing and notes what it was asked for."""

    name: str = "fake"
    multiprocessors: int = 132
    max_shared_bytes: int = 232_448
    launched: list[Specialisation] = field(default_factory=list)
    prepared: LaunchCache = field(default_factory=LaunchCache)

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        self.launched.append(specialisation)

    def workspace(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)


@dataclass
class FakeBench:
    """`seconds_of` says how long a captured call takes; what is captured is run once, so that errors show."""

    seconds_of: Callable[[], float]
    l2_bytes: int = 0
    launcher: SilentLauncher = field(default_factory=SilentLauncher)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    captured: int = 0

    def capture(self, call: Callable[[], None]) -> Callable[[], None]:
        self.captured += 1
        call()
        return call

    def seconds(self, call: Callable[[], None], repeats: int) -> float:
        return self.seconds_of() * repeats

    def wait(self) -> None:
        """Nothing runs."""
