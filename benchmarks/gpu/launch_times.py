"""What a launch costs the host: the bare launch, an op with its checks, and the op through torch's dispatcher."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from yaie_cuda.fused import silu_and_mul_kernel
from yaie_cuda.kernel import Specialisation
from yaie_cuda.launch_cache import LaunchCache

from .clock import Call, Timing
from .context import Context

LAUNCHES, TINY_LAUNCHES = 400, 4
SAMPLES = 15


@dataclass
class Noting:
    """A launcher that launches nothing and keeps what it was given."""

    given: list[tuple[Specialisation, tuple[int, int, int], ctypes.Structure]] = field(default_factory=list)
    prepared: LaunchCache = field(default_factory=LaunchCache)

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Keep it."""
        self.given.append((specialisation, grid, params))


def run(context: Context) -> None:
    """On rows so short that the device is faster than the host."""
    launcher, device = context.bench.launcher, context.bench.device
    both = torch.ones(1, 128, dtype=torch.bfloat16, device=device)
    out = torch.empty(1, 64, dtype=torch.bfloat16, device=device)
    with context.guarded("launches"):
        noting = Noting()
        silu_and_mul_kernel(noting, both, out)  # type: ignore[arg-type]
        bare = noting.given[0]
        timing = host_timing(context, lambda: launcher.launch(*bare))
        context.measured("launch: the bare launch, host", timing, "us", target="launch", judged=timing.median * 1e6)
        timing = host_timing(context, lambda: silu_and_mul_kernel(launcher, both, out))
        judged = timing.median * 1e6
        context.measured("launch: an op with its checks, host", timing, "us", "", "launch-checked", judged)
        timing = host_timing(context, lambda: torch.ops.yaie.silu_and_mul(both, out))
        context.measured("launch: the op through torch, host", timing, "us")


def host_timing(context: Context, call: Call) -> Timing:
    """Seconds of the host per call. The device's queue is empty at the start and never full."""
    count = TINY_LAUNCHES if context.tiny else LAUNCHES
    samples = []
    for _ in range(2 if context.tiny else SAMPLES):
        context.bench.wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        samples.append((time.perf_counter() - start) / count)
    return Timing.of(samples)
