"""The reports of the address and the thread sanitizer, cut down to what the writer of a kernel can act on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .diagnostics import place_of

# What the sanitizers call it, and what it is for a kernel.
MEANINGS = {
    "data race": "a data race: two threads touch the same memory, one of them writes, and no barrier is between them",
    "heap-buffer-overflow": "it touches memory outside of its tensors",
    "stack-buffer-overflow": "it touches memory outside of a local array",
    "global-buffer-overflow": "it touches memory outside of a shared or constant array",
    "use-after-poison": "it touches memory outside of its shared memory",
    "SEGV": "it touches memory that there is not",
}
_ACCESS = re.compile(
    r"^\s*(?P<before>previous )?(?P<kind>(?:atomic )?(?:read|write)) of size (?P<size>\d+)", re.IGNORECASE
)
_FRAME = re.compile(
    r"^\s*#\d+ (?:0x[0-9a-f]+ in )?(?P<function>.+?) (?:[^\s:]*/)?(?P<file>\w+\.cuh?):(?P<line>\d+)(?::\d+)?(?: |$)"
)
_TEMPLATE = re.compile(r"<[^<>]*>")
_RUNTIME = re.compile(r"(?:[^\s:]*/)?(?P<file>\w+\.cuh?):(?P<line>\d+):\d+: runtime error: (?P<text>.*)")


def read_report(verdict: str, log: str, own: str, source: Sequence[str]) -> tuple[str, list[str]]:
    """What is wrong, in a sentence, and a few lines on where. `own` is the kernel's file, `source` its lines."""
    runtime = _RUNTIME.search(verdict) or _RUNTIME.search(log)
    if runtime:
        return runtime["text"], [_line("", runtime["file"], int(runtime["line"]), own, source)]
    lines: list[str] = []
    inside = False
    for each in log.splitlines():
        if access := _ACCESS.match(each):
            inside = True
            before = "before it, by another thread: " if access["before"] else ""
            lines.append(f"{before}{access['kind'].lower()} of {access['size']} bytes")
        elif inside and (frame := _FRAME.match(each)):
            lines.append(_line(frame["function"], frame["file"], int(frame["line"]), own, source))
        elif not each.lstrip().startswith("#"):
            inside = False
    words = next((meaning for name, meaning in MEANINGS.items() if name in verdict), verdict)
    return words, lines


def _line(function: str, file: str, line: int, own: str, source: Sequence[str]) -> str:
    where = place_of(line) if file == own else f"{file} line {line}"
    text = f": {source[line - 1].strip()}" if file == own and line <= len(source) else ""
    plain = _TEMPLATE.sub("", function.partition("(")[0]).rpartition(" ")[2]
    name = f"in {plain}, " if plain else ""
    return f"    {name}{where}{text}"
