"""A stand-in for CUDA graphs on the CPU: records the operations of one run and plays them again on the same tensors.

As with a real graph, every Python value is frozen at the recording, results land in the tensors of the recording, and
whatever would have to wait for the device cannot be recorded. It is the recording of decodes on a CPU, with kernels of
any kind as operations of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie_cuda.cpu.recording import Recording, Room, active
from yaie_cuda.launch_cache import LaunchCache
from yaie_engine.backends.kernels import Kernels
from yaie_engine.graphs import Replay


class Tape(Recording):
    """A recording that also takes what nobody can look into."""

    def whole(self, again: Callable[[], None]) -> None:
        """Note one operation."""
        self._flush()
        self._steps.append(again)


class GraphRecorder:
    """`capture` as `yaie_engine.graphs.Capture`; `opaque` marks a kernel, which is recorded as one operation."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def capture(self, run: Callable[[], Tensor]) -> tuple[Tensor, Replay]:
        run()
        tape = Tape(Room())
        with tape.running():
            result = run()
        again = tape.finish()
        self.captures += 1
        result.fill_(torch.nan)  # what a replay does not write shows

        def replay() -> None:
            self.replays += 1
            again()

        return result, replay

    def opaque(self, kernel: Callable[..., None]) -> Callable[..., None]:
        """`kernel`, recorded as a whole while a recording is made."""

        def run(*arguments: Any) -> None:
            tape = active()
            if not isinstance(tape, Tape):
                kernel(*arguments)
                return
            tape.whole(partial(kernel, *arguments))
            with torch.utils._python_dispatch._disable_current_modes():
                kernel(*arguments)

        return run

    def kernels(self, plain: Kernels) -> Kernels:
        names = [name for name in Kernels.__slots__ if name != "launcher"]
        return Kernels(plain.launcher, **{name: self.opaque(getattr(plain, name)) for name in names})


class RecordingLauncher:
    """A launcher whose launches are recorded with their grid and parameters, as CUDA records them."""

    def __init__(self, launcher: Any, recorder: GraphRecorder) -> None:
        self.launcher, self.recorder = launcher, recorder
        self.name, self.multiprocessors = launcher.name, launcher.multiprocessors
        self.max_shared_bytes = launcher.max_shared_bytes
        self.prepared = LaunchCache()
        self.watch, self.warm_up = launcher.watch, launcher.warm_up

    def workspace(self, *asked: Any) -> Tensor:
        """The launcher's, kept alive with the graph that may hold its address."""
        buffer: Tensor = self.launcher.workspace(*asked)
        if (tape := active()) is not None:
            tape._made[buffer.untyped_storage()._cdata] = buffer.untyped_storage()
        return buffer

    def launch(self, specialisation: Any, grid: tuple[int, int, int], params: Any) -> None:
        self.recorder.opaque(self.launcher.launch)(specialisation, grid, params)
