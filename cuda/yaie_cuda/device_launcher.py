"""Runs kernels on a GPU, in the order of PyTorch's current stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from . import sources
from .compiler import arch_for, compile_all, compile_kernel
from .driver import DeviceLimits, Driver, Function
from .errors import KernelLaunchError
from .kernel import Progress, Specialisation
from .launch_cache import LaunchCache
from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class _Stream:
    """What the launches of one stream share: buffers, and prepared calls, which left the buffers as they need them."""

    workspace: Workspace = field(default_factory=Workspace)
    prepared: LaunchCache = field(default_factory=LaunchCache)


class _Code:
    """What is loaded on one GPU, by what the code depends on: specialisations and launchers may share it."""

    def __init__(self) -> None:
        self.loaded: dict[tuple[str, tuple[tuple[str, str], ...]], Function] = {}
        self.generation = sources.generation
        self.lock = Lock()

    def renew(self) -> None:
        """Forget the code of sources that were replaced."""
        if self.generation != sources.generation:
            self.generation = sources.generation
            self.loaded.clear()


class DeviceLauncher:
    """A Launcher on one GPU. Thread: any.

    A kernel is compiled and loaded when it is first launched, or before by `warm_up`; while a CUDA graph is captured
    neither is possible, and `launch` says so. Kernels whose source was replaced are compiled anew.

    Every stream has buffers of its own, so that launches on several streams may run at once; an op's launches on one
    stream come one behind the other, whatever other threads launch there. A graph uses the buffers of the stream that
    it was captured on, where each op has to be run before with the same shapes, and they live on with the launcher. It
    may be replayed on any stream, but not while another graph that was captured on the same stream runs, nor while
    launches on that stream do. Whoever captures has a launcher `apart`, with buffers that nobody else can have.
    """

    def __init__(self, index: int, driver: Driver, current_stream: Callable[[int], int], capturing: Callable[[], bool]):
        self.index = index
        self.name = f"cuda:{index}"
        self.limits: DeviceLimits = driver.limits()
        self.multiprocessors = self.limits.multiprocessors
        self.max_shared_bytes = self.limits.max_shared_bytes
        self.arch = arch_for(*self.limits.capability)
        self._driver = driver
        self._current_stream, self._capturing = current_stream, capturing
        # PyTorch makes its streams once and hands them out again: there are few, and none is ever destroyed.
        self._streams: dict[int, _Stream] = {}
        self._code = _Code()
        self._ready: dict[Specialisation, Function] = {}
        self._generation = sources.generation

    def apart(self) -> DeviceLauncher:
        """Another launcher of this GPU: with the code that is loaded, and buffers and a record of its own."""
        other = DeviceLauncher(self.index, self._driver, self._current_stream, self._capturing)
        other._code = self._code
        return other

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Start the kernel on PyTorch's current stream, without waiting.

        Raises:
            KernelLaunchError: the driver refused, or the kernel needs more than the GPU has; the text names the kernel.
            KernelCompileError, ToolMissingError: see `compile_kernel`.
        """
        function = self._ready.get(specialisation) if self._generation == sources.generation else None
        if function is None:
            function = self._prepare(specialisation)
        if 0 in grid:
            return
        self._driver.launch(
            function,
            grid,
            specialisation.threads,
            specialisation.shared_bytes,
            self._current_stream(self.index),
            params,
            specialisation.kernel.name,
        )

    @property
    def loaded(self) -> tuple[Specialisation, ...]:
        """What was launched or warmed up here since a source was last replaced."""
        with self._code.lock:
            return tuple(self._ready)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of the current stream."""
        return self._stream().workspace.nbytes

    def workspace(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer that launches on the current stream reuse; its content is undefined.

        It never grows while a CUDA graph is captured: RuntimeError.
        """
        return self._stream().workspace.take(name, shape, dtype, device)

    def drop_buffers(self) -> None:
        """Let go of all buffers, those of captured graphs too, and of the calls that were prepared with them.

        No launch may run or begin meanwhile, and no graph may be replayed any more.
        """
        self._streams.clear()

    @property
    def prepared(self) -> LaunchCache:
        """Calls that were prepared on the current stream."""
        return self._stream().prepared

    def _stream(self) -> _Stream:
        """What belongs to the current stream."""
        stream = self._current_stream(self.index)
        # Of two threads that come first, both get what one of them put there.
        return self._streams.get(stream) or self._streams.setdefault(stream, _Stream())

    def warm_up(self, specialisations: Iterable[Specialisation], progress: Progress | None = None) -> None:
        """Compile, several at a time, and load all of these; raises what `launch` raises.

        `progress` is called on the caller's thread with (done, all) as each one is compiled.
        """
        wanted = list(dict.fromkeys(specialisations))
        compile_all([(one, self.arch) for one in wanted], None if progress is None else lambda i, n, _: progress(i, n))
        for one in wanted:
            self._prepare(one)

    def _prepare(self, specialisation: Specialisation) -> Function:
        """Compile, load, and allow the shared memory of a specialisation, unless that is done."""
        code = self._code
        with code.lock:
            code.renew()
            if self._generation != code.generation:
                self._generation = code.generation
                self._ready.clear()
            if specialisation in self._ready:
                return self._ready[specialisation]
            label, shared = specialisation.label, specialisation.shared_bytes
            self._check_shared(label, shared)
            key = (specialisation.kernel.name, specialisation.macros)
            if key not in code.loaded:
                if self._capturing():
                    raise KernelLaunchError(
                        f"{label} would be loaded while a CUDA graph is captured: launch it once, or warm it up, before"
                    )
                cubin = compile_kernel(specialisation, self.arch).cubin
                code.loaded[key] = self._driver.load(cubin, specialisation.kernel.name, label)
            function = code.loaded[key]
            self._check_shared(label, shared + function.static_bytes)
            # Without it the launch is refused where static and dynamic shared memory are together above 48 KiB.
            self._driver.allow_shared(function, shared, label)
            self._ready[specialisation] = function
            return function

    def _check_shared(self, label: str, needed: int) -> None:
        """Raise KernelLaunchError when a block of this GPU does not have `needed` bytes of shared memory."""
        if needed > self.max_shared_bytes:
            raise KernelLaunchError(
                f"{label}: a block needs {needed} bytes of shared memory, {self.name} has {self.max_shared_bytes}"
            )
