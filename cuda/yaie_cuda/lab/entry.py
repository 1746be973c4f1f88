"""Whether a text and what became of it are the kernel that engines launch: its headers, entry point and parameters."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator

from yaie_cuda.kernel import SOURCES, Specialisation

_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL)
_FILE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)\b[ \t]*([^\n]*)", re.MULTILINE)
_EXTERN = re.compile(r'\bextern\s*"C"')
_SIZED = re.compile(r"\bstatic_assert\s*\(\s*sizeof\s*\(\s*Params\s*\)\s*==\s*PARAMS_BYTES\b")
SIZE_CHECK = """
#line 1 "size check"
static_assert(sizeof(Params) == PARAMS_BYTES, "Params must have the size of the built-in kernel's, PARAMS_BYTES");
"""
# Attributes of a kernel in section .nv.info.<name>: a form, a number, two bytes of value or of the length that follows.
_LONG, _MAX_THREADS, _PARAMETER_BYTES = 4, 0x05, 0x19


def source_problem(name: str, text: str) -> str:
    """Why `text` cannot be kernel `name`, in words; "" where nothing speaks against it.

    Builds are kept by the text and our headers: one that reads other files would be taken for what it was before.
    """
    code = _plain(text)
    headers = sorted(path.name for path in SOURCES.glob("*.cuh"))
    for operand in map(str.strip, _FILE.findall(code)):
        if operand not in [f'"{each}"' for each in headers]:
            return (
                f"it includes {operand}; a kernel includes the shared headers and no other file: {', '.join(headers)}"
            )
    if not (
        _EXTERN.search(code) and re.search(r"\b__global__\b", code) and re.search(rf"\b{re.escape(name)}\s*\(", code)
    ):
        return missing(name)
    return ""


def missing(name: str) -> str:
    """That the entry point is not there."""
    return f'it defines no extern "C" __global__ void {name}(const __grid_constant__ Params p)'


def sized(text: str) -> str:
    """`text` with the check of the size of its parameters, where it has none of its own."""
    return text if _SIZED.search(_plain(text)) else text + SIZE_CHECK


def cubin_problem(specialisation: Specialisation, cubin: bytes) -> str:
    """Why a GPU could not launch what was compiled, in words, or ""."""
    name, sections = specialisation.kernel.name, dict(_sections(cubin))
    if f".text.{name}" not in sections:
        return missing(name)
    attributes = dict(_attributes(sections.get(f".nv.info.{name}", b"")))
    given, taken = ctypes.sizeof(specialisation.kernel.params), attributes.get(_PARAMETER_BYTES)
    if taken is not None and int.from_bytes(taken, "little") != given:
        return f"it takes {int.from_bytes(taken, 'little')} bytes of parameters and is given {given}"
    if bounds := attributes.get(_MAX_THREADS):
        x, y, z = struct.unpack("<3I", bounds)
        if x * y * z < specialisation.threads:
            return f"its __launch_bounds__ allow {x * y * z} threads, and it is launched with {specialisation.threads}"
    return ""


def _plain(text: str) -> str:
    """The text without comments, continued lines as one."""
    return _COMMENT.sub(lambda found: found[1] or " ", re.sub(r"\\[ \t]*\r?\n", "", text))


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of a 64-bit ELF file by name."""
    (start,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<3H", elf, 58)
    # Of each: where its name is, (kind, flags, address), where it lies, how long it is.
    found = [struct.unpack_from("<I20xQQ", elf, start + index * size) for index in range(count)]
    for name, offset, length in found:
        at = found[names][1] + name
        yield elf[at : elf.index(b"\0", at)].decode(), elf[offset : offset + length]


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes of a kernel by number."""
    at = 0
    while at < len(info):
        form, number, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _LONG:
            yield number, info[at : at + length]
            at += length
        else:
            yield number, info[at - 2 : at]
