"""A stand-in for CUDA graphs on the CPU: records the operations of one run and plays them again on the same tensors.

As with a real graph, every Python value is frozen at the recording, results land in the tensors of the recording, and
whatever would have to wait for the device cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from yaie_cuda.launch_cache import LaunchCache
from yaie_engine.backends.kernels import Kernels
from yaie_engine.graphs import Replay

aten = torch.ops.aten
FORBIDDEN = {aten._local_scalar_dense.default, aten.item.default, aten.nonzero.default, aten.masked_select.default}
EMPTY = {aten.empty.memory_format, aten.new_empty.default, aten.empty_like.default, aten.empty_strided.default}


class GraphRecorder(TorchDispatchMode):
    """`capture` as `yaie_engine.graphs.Capture`; `opaque` marks a kernel, which is recorded as one operation."""

    def __init__(self) -> None:
        super().__init__()
        self.captures = self.replays = 0
        self._tape: list[Callable[[], None]] | None = None
        self._kept: list[Any] = []  # a launch holds addresses only

    def capture(self, run: Callable[[], Tensor]) -> tuple[Tensor, Replay]:
        run()
        tape: list[Callable[[], None]] = []
        self._tape = tape
        try:
            with self:
                result = run()
        finally:
            self._tape = None
        self.captures += 1
        result.fill_(torch.nan)  # what a replay does not write shows

        def replay() -> None:
            self.replays += 1
            for step in tape:
                step()

        return result, replay

    def opaque(self, kernel: Callable[..., None]) -> Callable[..., None]:
        """`kernel`, recorded as a whole while a recording is made."""

        def run(*arguments: Any) -> None:
            if self._tape is None:
                kernel(*arguments)
                return
            self._tape.append(lambda: kernel(*arguments))
            with torch.utils._python_dispatch._disable_current_modes():
                kernel(*arguments)

        return run

    def kernels(self, plain: Kernels) -> Kernels:
        names = [name for name in Kernels.__slots__ if name != "launcher"]
        return Kernels(plain.launcher, **{name: self.opaque(getattr(plain, name)) for name in names})

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FORBIDDEN:
            raise RuntimeError(f"{func} waits for the device and cannot be captured")
        out = func(*args, **kwargs)
        tape = self._tape
        self._kept.append(out)
        if tape is None or func in EMPTY:
            return out
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if func._schema.is_mutable:
            tape.append(lambda: func(*args, **kwargs))
        elif not _storages(out) & _storages((args, kwargs)):  # else a view, which follows by itself

            def again() -> None:
                fresh = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, Tensor)]
                for old, new in zip(outputs, fresh, strict=True):
                    old.copy_(new)

            tape.append(again)
        return out


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
        self.recorder._kept.append(buffer)
        return buffer

    def launch(self, specialisation: Any, grid: tuple[int, int, int], params: Any) -> None:
        self.recorder.opaque(self.launcher.launch)(specialisation, grid, params)


def _storages(value: Any) -> set[int]:
    return {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}
