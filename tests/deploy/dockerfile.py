"""A reader of Dockerfiles: stages of instructions, as far as ours needs it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """What follows a FROM."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        """The arguments of each instruction of this kind."""
        return [rest for name, rest in self.instructions if name == keyword]

    @property
    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        pairs = (re.findall(r"(\w+)=(\S+)", rest) for rest in self.all("ENV"))
        return {name: value for found in pairs for name, value in found}


def read(path: Path) -> tuple[dict[str, str], list[Stage]]:
    """ARGs before the first FROM, and the stages."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base), name))
        elif keyword == "ARG" and not stages:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif keyword:
            stages[-1].instructions.append((keyword, rest))
    return arguments, stages


def words(rest: str) -> list[str]:
    """The exec form of a command."""
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found
