"""Where measurements run: a GPU with its own clock and graphs, or the CPU, where the same code is tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from yaie_cuda.device_launcher import DeviceLauncher
    from yaie_cuda.kernel import Launcher

    from .clock import Call


class Bench(Protocol):
    """`launcher` runs kernels on tensors of `device`; `l2_bytes` is the cache that measurements must exceed."""

    @property
    def device(self) -> torch.device: ...
    @property
    def launcher(self) -> Launcher: ...
    @property
    def l2_bytes(self) -> int: ...

    def capture(self, call: Call) -> Call:
        """Run `call` a few times, then record it; the result runs the record again."""
        ...

    def seconds(self, call: Call, repeats: int) -> float:
        """Seconds that the device needs for `repeats` runs of `call`, one right after the other."""
        ...

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        ...


class GpuBench:
    """GPU `index`, timed by its own events. Raises RuntimeError where there is none."""

    def __init__(self, index: int = 0) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU here; --cpu tries the check without one")
        torch.cuda.set_device(index)
        torch.cuda.init()
        self.device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self.device)

    @cached_property
    def launcher(self) -> DeviceLauncher:
        """The GPU's; asked for late, so that a GPU that cannot run our kernels can still be described."""
        from yaie_cuda.device import launcher

        return launcher(self.device.index)

    @property
    def l2_bytes(self) -> int:
        return self.launcher.limits.l2_bytes

    def capture(self, call: Call) -> Call:
        """A CUDA graph of `call`; what it needs lives as long as the graph."""
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            for _ in range(2):
                call()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Not `torch.cuda.graph`, which collects garbage each time; there are a thousand captures in a run.
        with torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                call()
            except BaseException:
                with suppress(RuntimeError):  # the capture failed already; the reason is what `call` raised
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph.replay

    def seconds(self, call: Call, repeats: int) -> float:
        """By CUDA events around the runs."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)


class HostBench:
    """The emulator. Its times say nothing about a GPU; they show that what measures works."""

    l2_bytes = 0

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        from yaie_cuda.emulator.launcher import EmulatorLauncher

        self.device = torch.device("cpu")
        self.launcher: Launcher = EmulatorLauncher()
        self._clock = clock

    def capture(self, call: Call) -> Call:
        """Nothing is recorded: the call itself, run once."""
        call()
        return call

    def seconds(self, call: Call, repeats: int) -> float:
        begin = self._clock()
        for _ in range(repeats):
            call()
        return self._clock() - begin

    def wait(self) -> None:
        """The CPU has finished when a call returns."""
