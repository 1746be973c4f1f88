"""The mutation runs that were published, file by file: docs/mutation.json, and what docs/reliability.md shows of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from .mutant import path_of

KEPT = Path(__file__).parents[2] / "docs" / "mutation.json"
HEAD = """
## Planted mistakes
Written from [mutation.json](mutation.json): `./scripts/mutate --json FILE` plants every small mistake that it can make
of these files, one at a time, and asks the quick tests; `./scripts/reliability --mutation FILE` publishes what it ran.
Row 25 draws a few of the same. Those that change nothing are listed in `tests/mutation/equivalent.txt`, each with its
reason. What timed out used more processor time than any test takes, or waited for ever. "Older text" says that a file
was changed since, so that its row tells of what it was then.

"""
TABLE = "| file | commit | mistakes | change nothing | killed | timed out | survived | caught |\n"
TABLE += f"{'|---' * 8}|\n"


OLDER = ", older text"
"""Stands beside the commit of what was changed since. `--check` reads over it: a change alone makes no page stale."""


class Entry(TypedDict):
    """One file: how many of its mistakes became what, and those that survived, as lines before and after.

    `text` is the `digest` of the file they were planted in; runs of old did not note it.
    """

    commit: str
    date: str
    counts: dict[str, int]
    survivors: list[list[str]]
    text: NotRequired[str]


def digest(module: str) -> str:
    """Of the text of a module as it is now; "" where there is none any more."""
    path = path_of(module)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def older(entries: Mapping[str, Entry]) -> list[str]:
    """The files whose text is not, or is not known to be, what the mistakes were planted in."""
    return [name for name, entry in entries.items() if not entry.get("text") or entry.get("text") != digest(name)]


def unmarked(page: str) -> str:
    """A page without what it says about older texts."""
    return page.replace(OLDER, "")


def misses(entries: Mapping[str, Entry]) -> list[str]:
    """A line for each file with mistakes that nothing caught."""
    counts = {name: entry["counts"].get("survived", 0) for name, entry in entries.items()}
    return [
        f"{count} planted mistake{'s' * (count > 1)} in {name} survived; see below"
        for name, count in counts.items()
        if count
    ]


def read(path: Path = KEPT) -> dict[str, Entry]:
    """By name of the file, sorted; empty where nothing was published."""
    found: dict[str, Entry] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def publish(run: Path, path: Path = KEPT) -> None:
    """Take over each file of a run; the others keep what they have.

    Raises:
        ValueError: the run has not ended, or was one of a part of the mistakes.
    """
    found: dict[str, Any] = json.loads(run.read_text(encoding="utf-8"))
    if not found.get("complete") or not found.get("whole"):
        raise ValueError(f"{run}: publish a run that has ended, without --sample and --lines")
    entries = read(path)
    for name, counts in found["files"].items():
        mine = [each[1:] for each in found["survivors"] if each[0] == name]
        entries[name] = Entry(commit=found["commit"], date=found["date"], counts=counts, survivors=mine)
        if text := found.get("texts", {}).get(name):
            entries[name]["text"] = text
    written = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
    path.write_text(f"{written}\n", encoding="utf-8")


def section(entries: Mapping[str, Entry], old: Collection[str]) -> str:
    """What the page shows of them; `old` are the files whose text is another one now."""
    if not entries:
        return ""
    rows, left = "", ""
    for name, entry in entries.items():
        killed, late, survived, same = (
            entry["counts"].get(each, 0) for each in ("killed", "timed out", "survived", "equivalent")
        )
        judged = killed + late + survived
        share = 100 * (killed + late) / judged if judged else 100.0
        rows += f"| {name} | {entry['commit']} of {entry['date']}{OLDER * (name in old)} | {judged + same} | {same} "
        rows += f"| {killed} | {late} | {survived} | {share:.1f} % |\n"
        left += "".join(f"{name} {where}\n- {before}\n+ {after}\n" for where, before, after in entry["survivors"])
    return HEAD + TABLE + rows + (f"\nThese survived:\n```diff\n{left}```\n" if left else "\nNothing survived.\n")
