"""Runs a kernel in a process of its own, on copies of the buffers that it may touch."""

from __future__ import annotations

import bisect
import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from yaie_cuda.errors import EmulatorError
from yaie_cuda.kernel import Specialisation

SANITIZER_SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99:report_thread_leaks=0",
}
MOST_REPORT_LINES = 40
_NOISE = re.compile(r"^=+$|\bemu::|\breplay::|[ /]emulate:\d|in main |libc_start|_start |SUMMARY:")
_PATH = re.compile(r"[^\s(]*/(\w+\.(?:cuh?|hpp|cpp)\b)")
_KIND = re.compile(r"Sanitizer: ([\w -]+?)(?: \(pid=| on |$)", re.MULTILINE)
_PLACE = re.compile(r"\w+\.cuh?:\d+")
MOST_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of this process that a kernel may touch: [start, stop), kept alive by `owner`."""

    start: int
    stop: int
    owner: Tensor


def extent(tensor: Tensor) -> tuple[int, int]:
    """First byte and end of what the elements of `tensor` cover."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


class Buffers:
    """The buffers known so far. Overlapping ones count as one."""

    def __init__(self) -> None:
        self._known: list[Buffer] = []

    def watch(self, *tensors: Tensor | None) -> None:
        """Add what `tensors` cover; None is passed over."""
        for tensor in tensors:
            if tensor is None:
                continue
            start, stop = extent(tensor)
            if stop == start:
                continue
            apart = []
            for buffer in self._known:
                if buffer.stop <= start or buffer.start >= stop:
                    apart.append(buffer)
                else:
                    start, stop = min(start, buffer.start), max(stop, buffer.stop)
            self._known = sorted([*apart, Buffer(start, stop, tensor)], key=lambda buffer: buffer.start)

    def replay(
        self,
        program: Path,
        sanitizer: str,
        specialisation: Specialisation,
        launch: ctypes.Structure,
        params: ctypes.Structure,
    ) -> None:
        """Run `program` on copies of the buffers and take over what it wrote. Raises EmulatorError with its report."""
        self._check_pointers(specialisation, params)
        with tempfile.TemporaryDirectory(prefix="yaie-emulator-") as folder:
            problem, result = Path(folder) / "problem", Path(folder) / "result"
            problem.write_bytes(self._problem(specialisation, launch, params))
            command = [str(program), str(problem), str(result)]
            if sanitizer == "thread" and shutil.which("setarch"):  # it knows no layout with random addresses
                command = ["setarch", platform.machine(), "-R", *command]
            try:
                done = subprocess.run(
                    command,
                    env={**os.environ, **SANITIZER_SETTINGS},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=MOST_SECONDS,
                )
            except OSError as error:  # a folder whose files may not be run, for one
                raise EmulatorError(f"{specialisation.label}: its program cannot be run: {error}") from error
            if done.returncode != 0:
                raise EmulatorError(f"{specialisation.label}: {summary(done.stderr, done.returncode)}")
            self._take_over(result.read_bytes())

    def _check_pointers(self, specialisation: Specialisation, params: ctypes.Structure) -> None:
        """Every pointer among the parameters must lie in a known buffer, or be null."""
        starts = [buffer.start for buffer in self._known]
        for name, code in specialisation.kernel.fields:
            pointer = getattr(params, name) if code == "p" else None
            if not pointer:
                continue
            place = bisect.bisect_right(starts, pointer) - 1
            if place < 0 or pointer >= self._known[place].stop:
                raise EmulatorError(f"{specialisation.label}: {name} points at no tensor given to watch()")

    def _problem(self, specialisation: Specialisation, launch: ctypes.Structure, params: ctypes.Structure) -> bytes:
        """The launch as replay.cpp reads it."""
        structure = specialisation.kernel.params
        offsets = [getattr(structure, name).offset for name, code in specialisation.kernel.fields if code == "p"]
        body = bytes(params)
        parts = [
            struct.pack("<3Q", len(body), len(offsets), len(self._known)),
            bytes(launch),
            struct.pack(f"<{len(offsets)}Q", *offsets),
            body,
        ]
        for buffer in self._known:
            size = buffer.stop - buffer.start
            parts += [struct.pack("<2Q", buffer.start, size), ctypes.string_at(buffer.start, size)]
        return b"".join(parts)

    def _take_over(self, result: bytes) -> None:
        at = 0
        for buffer in self._known:
            size = buffer.stop - buffer.start
            ctypes.memmove(buffer.start, result[at : at + size], size)
            at += size


def summary(report: str, code: int) -> str:
    """A sanitizer's report with its verdict first, without the emulator's own frames, cut to what a person reads."""
    lines = [_PATH.sub(r"\1", line) for line in report.splitlines() if line.strip() and not _NOISE.search(line)]
    text = "\n".join(lines[:MOST_REPORT_LINES])
    kind, place = _KIND.search(text), _PLACE.search(text)
    verdict = f"{kind[1]} at {place[0]}\n" if kind and place else ""
    return f"{verdict}{text}" if text else f"the program ended with code {code}"
