"""NVRTC: a specialisation and an arch become a cubin and a report. Needs no GPU and no driver."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from . import cubin_cache
from .errors import KernelCompileError, ToolMissingError
from .kernel import Specialisation
from .program import program_text
from .report import CompileReport, read_report

# All options but the kernel's name, macros and arch. They name what is kept on disk: another option is another kernel.
OPTIONS: Mapping[str, str | tuple[str, ...]] = {"std": "c++20", "ptxas_options": ("-v",)}
OLDEST_NVRTC = (12, 8)
INSTALL = "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
_STATUS = re.compile(r"^\d+: NVRTC_ERROR_COMPILATION, compilation log:\s*")
Progress = Callable[[int, int, CompileReport], None]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel for one arch, ready to load."""

    cubin: bytes
    report: CompileReport


@functools.cache
def nvrtc_version() -> tuple[int, int]:
    """The version of NVRTC. Raises ToolMissingError where it cannot be used."""
    try:
        import cuda.core
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolMissingError(f"kernels are compiled by NVRTC through cuda-core: {error}; {INSTALL}") from error
    if not hasattr(cuda.core, "Program"):
        raise ToolMissingError(f"cuda-core is too old: it has no cuda.core.Program; {INSTALL}")
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # cuda.bindings loads the library here, and has no base class for what it raises
        raise ToolMissingError(f"NVRTC cannot be loaded: {error}; {INSTALL}") from error
    if int(status) != 0:
        raise ToolMissingError(f"NVRTC does not tell its version (error {int(status)}); {INSTALL}")
    if (major, minor) < OLDEST_NVRTC:
        oldest = ".".join(map(str, OLDEST_NVRTC))
        raise ToolMissingError(f"NVRTC {major}.{minor} is too old, the kernels need {oldest}; {INSTALL}")
    return major, minor


def compiler_reason() -> str:
    """Why kernels cannot be compiled on this machine; "" when they can."""
    try:
        nvrtc_version()
    except ToolMissingError as error:
        return str(error)
    return ""


@functools.cache
def supported_archs() -> tuple[int, ...]:
    """The compute capabilities that NVRTC knows, times ten: 80 for sm_80, ascending."""
    from cuda.bindings import nvrtc

    nvrtc_version()
    status, archs = nvrtc.nvrtcGetSupportedArchs()
    return tuple(sorted(archs)) if int(status) == 0 else ()


def arch_for(major: int, minor: int) -> str:
    """The arch to compile for on a GPU of that compute capability: its own, or the latest before it that NVRTC knows.

    A cubin runs on GPUs of the same major version with an equal or higher minor one. Raises ToolMissingError when NVRTC
    knows none of them.
    """
    wanted = 10 * major + minor
    usable = [arch for arch in supported_archs() if arch // 10 == major and arch <= wanted]
    if not usable:
        version = ".".join(map(str, nvrtc_version()))
        raise ToolMissingError(f"NVRTC {version} does not know GPUs of compute capability {major}.{minor}; {INSTALL}")
    return f"sm_{usable[-1]}"


def compile_kernel(specialisation: Specialisation, arch: str, source: str | None = None) -> CompiledKernel:
    """Compile for `arch` ("sm_90"), or take what an earlier run compiled from the same text with the same compiler.

    `source` replaces what the kernel is compiled from. Thread: any; NVRTC compiles several kernels at a time.

    Raises:
        KernelCompileError: with NVRTC's log, which names the kernel's own file and line.
        ToolMissingError: NVRTC is missing or too old.
    """
    text = program_text(specialisation, source)
    version = ".".join(map(str, nvrtc_version()))
    macros = [f"{name}={value}" for name, value in specialisation.macros]
    key = cubin_cache.key_of(text, *macros, arch, json.dumps(OPTIONS, sort_keys=True), version)
    found = cubin_cache.load(key)
    if found is None:
        start = time.perf_counter()
        cubin, log = _compile(specialisation, arch, text)
        milliseconds = (time.perf_counter() - start) * 1000
        report = read_report(specialisation.label, arch, log, len(cubin), milliseconds)
        cubin_cache.store(key, cubin, report)
    else:
        cubin, report = found
    # The code does not depend on the size of dynamic shared memory, and what is kept is without it.
    shared = report.shared_bytes + specialisation.shared_bytes
    return CompiledKernel(cubin, replace(report, shared_bytes=shared))


def _compile(specialisation: Specialisation, arch: str, text: str) -> tuple[bytes, str]:
    """The cubin and what ptxas says about it."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=f"{specialisation.kernel.name}.cu",
        arch=arch,
        define_macro=list(specialisation.macros),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in OPTIONS.items()},
    )
    log = io.StringIO()
    try:
        cubin = Program(text, "c++", options).compile("cubin", logs=log).code
    except Exception as error:  # the class of cuda.core's errors is private to it
        said = _STATUS.sub("", f"{error}\n{log.getvalue()}")
        raise KernelCompileError(specialisation.label, arch, said.replace("\0", "")) from error
    return bytes(cubin), log.getvalue().replace("\0", "")


def compile_all(
    wanted: Iterable[tuple[Specialisation, str]], progress: Progress | None = None, threads: int | None = None
) -> list[CompileReport]:
    """Compile every (specialisation, arch), several at a time; a kernel that fails has a report that is not `ok`.

    `progress` is called on the caller's thread with (done, all, report) as each one ends. Raises ToolMissingError.
    """
    nvrtc_version()
    todo = list(dict.fromkeys(wanted))
    reports: dict[tuple[Specialisation, str], CompileReport] = {}
    with ThreadPoolExecutor(threads or os.cpu_count() or 1, "yaie-compile") as pool:
        running = {pool.submit(_report, *each): each for each in todo}
        for future in as_completed(running):
            reports[running[future]] = future.result()
            if progress is not None:
                progress(len(reports), len(todo), reports[running[future]])
    return [reports[each] for each in todo]


def _report(specialisation: Specialisation, arch: str) -> CompileReport:
    try:
        return compile_kernel(specialisation, arch).report
    except KernelCompileError as error:
        return CompileReport(specialisation.label, arch, ok=False, log=error.log)
