"""What a compiler says about a kernel, with lines counted as the writer of the cell counts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_LINES = 1  # the line `%%kernel NAME` itself
_NVRTC = re.compile(
    r"^(?P<file>[^\s(:]+)\((?P<line>\d+)\): (?P<kind>(?:catastrophic )?error|warning)[^:]*: (?P<text>.*)$"
)
_GCC = re.compile(
    r"^(?P<file>[^\s(:]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?(?P<kind>error|warning): (?P<text>.*)$"
)
_GCC_SOURCE = re.compile(r"^ *\d* \| ?")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message. `line` counts from 1 at the first line of the source; `source` is that line and `caret` the column
    of the mark under it (from 0), None where the compiler gives none."""

    file: str
    line: int
    kind: str
    text: str
    source: str = ""
    caret: int | None = None

    def lines(self, own: str) -> list[str]:
        """For people; `own` is the file that the cell's body stands for."""
        place = place_of(self.line) if self.file == own else f"{self.file} line {self.line}"
        found = [f"{place}: {self.kind}: {self.text}"]
        if self.source:
            shown = self.source.replace("\t", " ")
            indent = len(shown) - len(shown.lstrip())
            found.append(f"    {shown.strip()}")
            if self.caret is not None:
                found.append(f"    {' ' * max(0, self.caret - indent)}^")
        return found


def name_lines(text: str, own: str) -> tuple[str, list[int]]:
    """`text` with places such as "rms_norm.cu:34" in a reader's words, and the lines that it names."""
    pattern = re.compile(re.escape(own) + r":(\d+)")
    lines = [int(found) for found in pattern.findall(text)]
    return pattern.sub(lambda found: place_of(int(found[1])), text), lines


def place_of(line: int) -> str:
    """A line of the source, as it is counted there and in the cell."""
    return f"line {line} (line {line + HEADER_LINES} of the cell)"


def read_log(log: str) -> list[Diagnostic]:
    """The errors and warnings of NVRTC or a C++ compiler, in their order."""
    return list(_read(log.splitlines()))


def errors_first(found: list[Diagnostic], most: int = 5) -> list[Diagnostic]:
    """What a person reads: the first errors, or without errors the first warnings."""
    errors = [each for each in found if each.kind != "warning"]
    return (errors or found)[:most]


def _read(lines: list[str]) -> Iterator[Diagnostic]:
    for index, line in enumerate(lines):
        if match := _NVRTC.match(line):
            yield _with_source(match, lines[index + 1 : index + 3], strip=2)
        elif match := _GCC.match(line):
            yield _with_source(match, [_GCC_SOURCE.sub("", each) for each in lines[index + 1 : index + 3]], strip=0)


def _with_source(match: re.Match[str], after: list[str], strip: int) -> Diagnostic:
    """NVRTC indents the source line by two, and the caret with it."""
    source = caret = None
    if len(after) == 2 and "^" in after[1] and not after[1].replace("^", "").replace("~", "").strip():
        source, caret = after[0][strip:], after[1].index("^") - strip
    return Diagnostic(match["file"], int(match["line"]), match["kind"], match["text"], source or "", caret)
