"""The list of mutants that no test can tell from the module: each with the reason, and none that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant

LIST = Path(__file__).parent / "equivalent.txt"
Key = tuple[str, str, str, str]


class ListError(ValueError):
    """The list says something that it may not say; the text names the line and what to do."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One entry: the key of a mutant (`Mutant.key`), and why nothing that counts depends on it."""

    key: Key
    reason: str
    line: int


def read(path: Path = LIST) -> list[Equivalent]:
    """The entries of the list.

    Entries are separated by empty lines. The first line of one names module and function, then come `- before` and
    `+ after`, then the reason.

    Raises:
        ListError: an entry is not complete, or stands there twice.
    """
    entries: dict[Key, Equivalent] = {}
    first, block = 1, list[str]()
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.strip():
            first = first if block else number
            block.append(line.strip())
            continue
        block = [each for each in block if not each.startswith("#")]
        if block:
            entry = _entry(block, f"{path.name}, line {first}", first)
            if entry.key in entries:
                raise ListError(
                    f"{path.name}, line {first}: the entry of line {entries[entry.key].line} again; remove it"
                )
            entries[entry.key] = entry
        block = []
    return list(entries.values())


def _entry(block: list[str], place: str, line: int) -> Equivalent:
    module, _, where = block[0].partition(" ")
    if len(block) < 4 or not block[1].startswith("- ") or not block[2].startswith("+ "):
        raise ListError(f"{place}: an entry is `module function`, `- before`, `+ after` and a reason, each on its line")
    return Equivalent((module, where, block[1][2:], block[2][2:]), " ".join(block[3:]), line)


def check(entries: Iterable[Equivalent], mutants: Iterable[Mutant]) -> None:
    """That each entry is one of these mutants.

    Raises:
        ListError: one is not: the code around it was changed.
    """
    known = {mutant.key for mutant in mutants}
    for entry in entries:
        if entry.key not in known:
            raise ListError(
                f"{LIST.name}, line {entry.line}: {entry.key[0]} has no such mutant any more; "
                "look at it again, then write it anew or remove it"
            )
