"""What the device can do at all: the measures that kernels are held against, taken in the same process as they are."""

from __future__ import annotations

import torch

from .bench import Bench
from .clock import SAMPLES, Timing, time_calls

COPY_BYTES, TINY_COPY_BYTES = 2 * 2**30, 2**20
MATRIX, TINY_MATRIX = 8192, 128


def copy_timing(bench: Bench, tiny: bool = False, samples: int = SAMPLES) -> tuple[Timing, int]:
    """A copy from device memory to device memory, and the bytes that it reads and writes, added up."""
    size = TINY_COPY_BYTES if tiny else COPY_BYTES
    source = torch.ones(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return time_calls(bench, [lambda: _copy(source, target)], samples), 2 * size


def copy_bandwidth(bench: Bench, tiny: bool = False, samples: int = SAMPLES) -> float:
    """Bytes per second of `copy_timing`."""
    timing, moved = copy_timing(bench, tiny, samples)
    return moved / timing.median


def matmul_timing(bench: Bench, tiny: bool = False) -> tuple[Timing, float]:
    """A product of two square bfloat16 matrices of random numbers, and its floating-point operations."""
    size = TINY_MATRIX if tiny else MATRIX
    a, b = (torch.randn(size, size, device=bench.device).to(torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return time_calls(bench, [lambda: _multiply(a, b, out)]), 2.0 * size**3


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)


def _multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out=out)
