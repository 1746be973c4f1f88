"""A kernel's program: its source with our headers written into it, so that one text is all that a compiler needs."""

from __future__ import annotations

import re

from . import sources
from .kernel import SOURCES, Specialisation

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"/]+)"')
_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once\b")


def program_text(specialisation: Specialisation, source: str | None = None) -> str:
    """`source`, or what the kernel is compiled from now, with each header of kernels/ at its first `#include`.

    Lines keep the name and number of their own file. A header that is none of ours stays for the compiler to refuse.
    """
    name = specialisation.kernel.name
    text = sources.text_of(name) if source is None else source
    return _inlined(f"{name}.cu", text, set())


def _inlined(name: str, text: str, seen: set[str]) -> str:
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(text.splitlines(), start=1):
        found = _INCLUDE.match(line)
        header = SOURCES / found[1] if found else None
        if found and header and header.is_file():
            if found[1] not in seen:
                seen.add(found[1])
                lines.append(_inlined(found[1], header.read_text(encoding="utf-8"), seen))
            lines.append(f'#line {number + 1} "{name}"')
        else:
            lines.append("" if _ONCE.match(line) else line)
    return "\n".join(lines)
