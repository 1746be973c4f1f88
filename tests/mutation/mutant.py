"""One small mistake in one module: where it is, what it replaces and by what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaie_engine

HOME = Path(yaie_engine.__file__).parent


def path_of(module: str) -> Path:
    """The file of a module of the engine, named without its package: `store.record`."""
    return HOME / f"{module.replace('.', '/')}.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """The bytes from `start` to `stop` of `module` become `new`; `where` is the function around them."""

    module: str
    where: str
    text: bytes
    start: int
    stop: int
    new: bytes

    @property
    def line(self) -> int:
        """The line in which it begins, from 1."""
        return self.text.count(b"\n", 0, self.start) + 1

    @property
    def source(self) -> str:
        """The text of the module with the mistake in it."""
        return (self.text[: self.start] + self.new + self.text[self.stop :]).decode()

    @property
    def diff(self) -> tuple[str, str]:
        """The lines that differ, before and after, without their indentation."""
        first = self.text.rfind(b"\n", 0, self.start) + 1
        last = self.text.find(b"\n", self.stop)
        last = len(self.text) if last < 0 else last
        before = self.text[first:last]
        after = self.text[first : self.start] + self.new + self.text[self.stop : last]
        return _joined(before), _joined(after)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is, wherever the lines around it move it to."""
        return (self.module, self.where, *self.diff)

    def __str__(self) -> str:
        before, after = self.diff
        return f"{self.module} {self.where}\n- {before}\n+ {after}"


def _joined(lines: bytes) -> str:
    return " ".join(line.strip() for line in lines.decode().splitlines())
