"""Builds kernels for the CPU: one library or program per specialisation, kept on disk by content."""

from __future__ import annotations

import functools
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from yaie_cuda import sources
from yaie_cuda.errors import ToolMissingError
from yaie_cuda.host_build import compile_whole, content_key, kept, sources_of, version_of
from yaie_cuda.kernel import SOURCES, Specialisation

HERE = Path(__file__).parent
COMPILERS = ("g++", "clang++")
COMMON = (
    "-std=c++20",
    "-g1",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-psabi",
)
# A library with a name that nothing defines must not come to be: it would be kept, and fail when it is loaded.
LIBRARY = ("-shared", "-Wl,-z,defs")
WRAPPER = """
#line 1 "emulate"
extern "C" __attribute__((visibility("default"))) int emulate(
    const emu::Launch* launch, const void* params, char* message, size_t size) {{
    const auto body = [](const void* p) {{ {name}(*static_cast<const Params*>(p)); }};
    return emu::launch(*launch, body, params, message, size);
}}
"""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to build: flags for the kernel, flags for the runtime under it, and whether it becomes a program."""

    kernel: tuple[str, ...]
    runtime: tuple[str, ...]
    program: bool = False


_ADDRESS = ("-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
MODES = {
    "": Mode(("-O2",), ("-O2",)),
    "address": Mode(_ADDRESS, _ADDRESS, program=True),
    # The runtime's own accesses are not the program under test: it tells the sanitizer what it must know.
    "thread": Mode(("-O1", "-fsanitize=thread"), ("-O1", "-DEMU_THREAD_SANITIZER"), program=True),
}


@functools.cache
def compiler() -> tuple[str, str]:
    """The C++ compiler's path and the text of `--version`. Raises ToolMissingError."""
    reason = emulator_reason()
    if reason:
        raise ToolMissingError(reason)
    path = next(filter(None, map(shutil.which, COMPILERS)), "")
    return path, version_of(path)


def emulator_reason() -> str:
    """Why kernels cannot be emulated on this machine, with what to install; "" when they can."""
    if not sys.platform.startswith("linux"):
        return f"kernels are emulated on Linux only, this is {sys.platform} (on Windows: WSL)"
    if not any(map(shutil.which, COMPILERS)):
        return (
            "kernels are emulated by a C++ compiler, and neither g++ nor clang++ is installed "
            "(Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"
        )
    return ""


@functools.cache
def machine_flags() -> tuple[str, ...]:
    """Vector instructions of this machine, where they are known to help: emulated matrix products use them."""
    if platform.machine() != "x86_64":
        return ()
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return ("-march=x86-64-v3",) if {"avx2", "fma", "f16c", "bmi2", "movbe"} <= words else ()


_headers = functools.cache(sources_of)


def _runtime(mode_name: str) -> Path:
    """The runtime as an object file."""
    path, version = compiler()
    flags = [*COMMON, *MODES[mode_name].runtime, *machine_flags()]
    key = content_key(_headers(HERE, "*.hpp", "*.cpp"), version.encode(), " ".join(flags).encode())

    def make(target: Path) -> None:
        text = f'#include "{HERE / "runtime.cpp"}"\n'
        compile_whole([path, *flags, f"-I{HERE}", "-x", "c++", "-c", "-"], text, target, "the emulator's runtime")

    return kept("emulator", f"runtime-{key}.o", make)


def build(specialisation: Specialisation, mode_name: str = "", source: str | None = None) -> Path:
    """The library (sanitizers: the program) of `specialisation`, from `source` or what its kernel is compiled from now.

    Raises:
        KernelCompileError: with the compiler's log, which names the kernel's own file and line.
        ToolMissingError: there is no compiler.
    """
    mode, kernel = MODES[mode_name], specialisation.kernel
    path, version = compiler()
    text = sources.text_of(kernel.name) if source is None else source
    text = f'#line 1 "{kernel.name}.cu"\n{text}{WRAPPER.format(name=kernel.name)}'
    if mode.program:
        text += (HERE / "replay.cpp").read_text(encoding="utf-8")
    flags = [*COMMON, *mode.kernel, *machine_flags(), *(f"-D{name}={value}" for name, value in specialisation.macros)]
    runtime = _runtime(mode_name)
    headers = _headers(SOURCES, "*.cuh") + _headers(HERE, "*.hpp")
    link = () if mode.program else LIBRARY
    key = content_key(
        text.encode(), headers, runtime.name.encode(), version.encode(), " ".join([*flags, *link]).encode()
    )

    def make(target: Path) -> None:
        places = [
            f"-I{SOURCES}",
            f"-I{HERE}",
            f"-ffile-prefix-map={SOURCES}/=",
            f"-ffile-prefix-map={HERE}/=",
            f"-fdebug-prefix-map={SOURCES}=.",
        ]
        command = [path, *flags, *places, *link, "-x", "c++", "-", "-x", "none", str(runtime), "-ldl"]
        compile_whole(command, text, target, specialisation.label)

    return kept("emulator", f"{kernel.name}-{key}{'' if mode.program else '.so'}", make)
