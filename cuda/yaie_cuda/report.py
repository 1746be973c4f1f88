"""What the compiler says about a kernel: registers, shared memory, spills, size, time."""

from __future__ import annotations

import re
from dataclasses import dataclass

_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame")
_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")


@dataclass(frozen=True, slots=True)
class CompileReport:
    """One kernel for one arch. `shared_bytes` is static and dynamic shared memory of a block; `spill_bytes` counts
    stores and loads of registers that did not fit; `compile_ms` is the time when it was compiled; `cached`: it was not
    compiled now. When not `ok`, `log` says why and the numbers are 0.
    """

    name: str
    arch: str
    ok: bool
    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    cubin_bytes: int = 0
    compile_ms: float = 0.0
    cached: bool = False
    log: str = ""


def read_report(name: str, arch: str, log: str, cubin_bytes: int, compile_ms: float) -> CompileReport:
    """The report of a kernel that did compile, from what `ptxas -v` printed; without dynamic shared memory."""

    def total(pattern: re.Pattern[str]) -> int:
        return sum(map(int, pattern.findall(log)))

    return CompileReport(
        name=name,
        arch=arch,
        ok=True,
        registers=total(_REGISTERS),
        shared_bytes=total(_SHARED),
        stack_bytes=total(_STACK),
        spill_bytes=total(_SPILLS),
        cubin_bytes=cubin_bytes,
        compile_ms=round(compile_ms, 1),
        log=log.strip(),
    )
