"""Runs emulated kernels on CPU tensors, behind the same interface as a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from yaie_cuda import sources
from yaie_cuda.errors import EmulatorError
from yaie_cuda.kernel import Progress, Specialisation
from yaie_cuda.launch_cache import LaunchCache
from yaie_cuda.workspace import Workspace

from . import build
from .buffers import Buffers

SCHEDULES = ("round_robin", "seeded", "warp_ahead")
MESSAGE_BYTES = 4096
# Every kernel's library catches bad addresses by signal handlers of its own while it runs, and puts back those it
# found: of two launches that overlap, the one that ends first would leave the other without.
_ONE_AT_A_TIME = threading.Lock()
_INSTRUCTION = re.compile(r" \[(?P<file>[^\[\]]+)\+(?P<offset>0x[0-9a-f]+)\]")


class LaunchStruct(ctypes.Structure):
    """`emu::Launch` of runtime.hpp."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("os_threads", ctypes.c_uint32),
        ("schedule", ctypes.c_uint32),
        ("eager_copies", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("limit_ms", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: each choice brings other mistakes to light.

    `schedule`: "round_robin" gives every thread its turn, "seeded" picks at random, "warp_ahead" lets one warp run as
    far as it can (with a seed, the next one is picked at random). `eager_copies` does asynchronous copies at once and
    not at the wait. `sanitizer`: "address" finds accesses out of bounds, "thread" finds races in shared and global
    memory; both run the kernel in a process of its own, and only on the buffers given to `watch`. `os_threads` blocks
    run at a time. With `limit_s` a launch of a kernel whose source was replaced is ended after so many seconds; under
    a sanitizer it has a limit anyway.
    """

    schedule: Literal["round_robin", "seeded", "warp_ahead"] = "round_robin"
    seed: int = 0
    eager_copies: bool = False
    os_threads: int = 1
    sanitizer: Literal["", "address", "thread"] = ""
    limit_s: float = 0.0

    def struct(self, specialisation: Specialisation, grid: tuple[int, int, int], limited: bool) -> LaunchStruct:
        """The launch as the runtime takes it."""
        return LaunchStruct(
            (ctypes.c_uint32 * 3)(*grid),
            specialisation.threads,
            specialisation.shared_bytes,
            self.os_threads,
            SCHEDULES.index(self.schedule),
            self.eager_copies,
            self.seed,
            int(self.limit_s * 1000) if limited else 0,
        )


@dataclass(eq=False)
class EmulatorLauncher:
    """A Launcher on the CPU. `replacements` gives other source text for kernels, by name. Thread: any.

    Raises from `launch`:
        EmulatorError: the kernel did something that it must not; its memory is then as it was left.
        KernelCompileError, ToolMissingError: see `build`.
    """

    options: Options = field(default_factory=Options)
    replacements: Mapping[str, str] = field(default_factory=dict)
    name: str = "emulated"
    multiprocessors: int = 4
    max_shared_bytes: int = 232448

    def __post_init__(self) -> None:
        self.prepared = LaunchCache()
        self._workspace = Workspace()
        self._buffers = Buffers()
        self._loaded: dict[Specialisation, Callable[..., int]] = {}
        self._generation = sources.generation

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        """Run all blocks of `grid`, and return when they are done."""
        if 0 in grid:
            return
        name = specialisation.kernel.name
        launch = self.options.struct(specialisation, grid, name in self.replacements or name in sources.replaced())
        if self.options.sanitizer:
            program = self._built(specialisation)
            self._buffers.replay(program, self.options.sanitizer, specialisation, launch, params)
            return
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        function = self._function(specialisation)
        with _ONE_AT_A_TIME:
            failed = function(ctypes.byref(launch), ctypes.byref(params), message, MESSAGE_BYTES)
        if failed:
            text = message.value.decode(errors="replace")
            raise EmulatorError(f"{specialisation.label}: {_INSTRUCTION.sub(_source_line, text)}")

    @property
    def loaded(self) -> tuple[Specialisation, ...]:
        """What was launched since a source was last replaced, but for sanitizer builds."""
        return tuple(self._loaded)

    def workspace(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer that launches reuse; its content is undefined."""
        buffer = self._workspace.take(name, shape, dtype, device)
        self.watch(buffer)
        return buffer

    def warm_up(self, specialisations: Iterable[Specialisation], progress: Progress | None = None) -> None:
        """Build these, several at a time; raises what `launch` raises. `progress` hears (done, all)."""
        wanted = list(dict.fromkeys(specialisations))
        with ThreadPoolExecutor(os.cpu_count() or 1, "yaie-build") as pool:
            for done, _ in enumerate(pool.map(self._built, wanted), 1):
                if progress is not None:
                    progress(done, len(wanted))

    def watch(self, *tensors: Tensor | None) -> None:
        """Name the tensors that kernels may touch: under a sanitizer an access outside of them is an error.

        An int64 tensor that holds addresses of other watched tensors is found by its content and adjusted.
        """
        if self.options.sanitizer:
            self._buffers.watch(*tensors)

    def _built(self, specialisation: Specialisation) -> Path:
        source = self.replacements.get(specialisation.kernel.name)
        return build.build(specialisation, self.options.sanitizer, source)

    def _function(self, specialisation: Specialisation) -> Callable[..., int]:
        """The entry of the built library; built anew after a kernel's source was replaced."""
        if self._generation != sources.generation:
            self._generation = sources.generation
            self._loaded.clear()
        found = self._loaded.get(specialisation)
        if found is None:
            path = self._built(specialisation)
            try:
                found = ctypes.CDLL(str(path)).emulate
            except (OSError, AttributeError) as error:  # a folder whose files may not be run, for one
                raise EmulatorError(f"{specialisation.label}: its library cannot be loaded: {error}") from error
            found.restype = ctypes.c_int
            self._loaded[specialisation] = found
        return found


def _source_line(found: re.Match[str]) -> str:
    """The source line of an instruction, where binutils can tell."""
    if shutil.which("addr2line") is None:
        return ""
    command = ["addr2line", "-e", found["file"], found["offset"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = done.stdout.strip().split(" ")[0].rpartition("/")[2]
    return f" at {line}" if done.returncode == 0 and line and not line.startswith("?") else ""
