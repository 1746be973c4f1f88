"""docs/reliability.md, from the JSON of the runs that it stands for: `scripts/reliability [FILE] [--mutation FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutation import published

from . import goals
from .result import OK, PART, RED, Result, Soak, read
from .rows import BY_NUMBER, ROWS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
KEPT = ROOT / "docs" / "reliability.json"
HEAD = """# Reliability

Written by `scripts/reliability` from [reliability.json](reliability.json), the last run of `scripts/soak` that was
published; `scripts/reliability --check` says whether it is stale. Do not edit.

`./scripts/soak --minutes M` runs the rows below, two at a time, each in a process of its own and as large as the time
allows, prints this table and ends with 1 when a gate does not hold. Gates ask for liveness, counts and equality. Times
and memory are printed and never judged: they say more about the machine than about the program. CI runs small sizes of
the same. `./scripts/soak --rows N --size SIZE --seed SEED` repeats one row.

Row 22, the same kernels under compute-sanitizer, needs a GPU and is part of `benchmarks/gpu_check`; its figures are in
[performance.md](performance.md).
"""
NEVER = (
    "No run has been published yet: `./scripts/soak --minutes 10`, then `./scripts/reliability build/soak/soak.json`.\n"
)
TABLE = "| row | what | gate | size | figure | verdict |\n|---|---|---|---|---|---|\n"


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def line(one: Result) -> str:
    """A row of the table."""
    cells = (str(one.row), one.what, one.gate, one.done, one.told, one.verdict)
    return f"| {' | '.join(map(cell, cells))} |\n"


def missing(soak: Soak) -> list[str]:
    """What the run leaves open: red rows with their faults, rows that could not run, rows that were not chosen."""
    told = []
    for one in soak.ordered():
        if one.verdict == RED:
            told.append(f"- Row {one.row} is red: {cell('; '.join(one.faults[:3]))}\n")
        elif one.verdict == PART:
            told.append(f"- Row {one.row} ran in part: {cell(one.part)}\n")
        elif one.verdict != OK:
            whole = " whole" if one.figure else ""
            told.append(f"- Row {one.row} did not run{whole}: {cell(one.skipped)}\n")
    absent = sorted(BY_NUMBER.keys() - {one.row for one in soak.results})
    return told + ([f"- Not in this run: rows {', '.join(map(str, absent))}\n"] if absent else [])


def commit_of(soak: Soak) -> str:
    """Of which text it was a run; older runs did not note it."""
    commit = str(soak.machine.get("commit", ""))
    changed = " with changes" * commit.endswith("+")
    return f" at commit {commit[:12]}{changed}" if commit else ", at a commit that the run did not note"


def misses(soak: Soak, entries: Mapping[str, published.Entry]) -> str:
    """Gates that do not hold, goals beside them that were missed, planted mistakes that nothing caught."""
    gates = missing(soak)
    beside = [f"- {cell(told)}\n" for one in soak.ordered() for told in goals.missed(one)]
    beside += [f"- {told}\n" for told in published.misses(entries)]
    if not gates and not beside:
        return "Nothing: every row ran, every gate holds and every goal is met.\n"
    found = "".join(gates) or "Every row ran and every gate holds.\n"
    return found + (f"\nBeside the gates:\n\n{''.join(beside)}" if beside else "")


def render(soak: Soak | None, entries: Mapping[str, published.Entry]) -> str:
    """The whole page."""
    if soak is None:
        rows = "".join(f"| {row.number} | {cell(row.what)} | {cell(row.gate)} | | | |\n" for row in ROWS)
        return f"{HEAD}\n## The last run\n{NEVER}\n{TABLE}{rows}"
    where = soak.machine
    told = f"{where['date']}{commit_of(soak)}: {where['cores']} cores, {where['memory_gb']} GB, "
    told += f"Python {where['python']}, load {where['load_before']} when it began; {soak.minutes:g} minutes asked for. "
    told += f"{soak.summary()}.\n"
    beside = "".join(f"| {one.row} | {one.seconds:.0f} | {cell(one.times)} |\n" for one in soak.ordered())
    return (
        f"{HEAD}\n## The last run\n{told}\n{TABLE}{''.join(map(line, soak.ordered()))}"
        f"\n## Misses\n{misses(soak, entries)}"
        f"\n## Measured beside\n| row | seconds | times and memory |\n|---|---|---|\n{beside}"
    )


def kept() -> Soak | None:
    """The run that was published last."""
    return read(KEPT) if KEPT.is_file() else None


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say whether it is stale; with a path, publish that run."""
    parser = argparse.ArgumentParser(prog="scripts/reliability", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", nargs="?", type=Path, help="the JSON of a run of scripts/soak, to be published")
    parser.add_argument("--mutation", type=Path, help="the JSON of a run of scripts/mutate, to be published")
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    given = parser.parse_args(arguments)
    try:
        soak = kept() if given.run is None else read(given.run)
        if given.mutation is not None:
            published.publish(given.mutation)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if given.run is not None and soak is not None:
        if not soak.complete:
            parser.error(f"{given.run}: the run did not end, so that it proves less than it says")
        soak.write(KEPT)
    entries = published.read()
    older = published.older(entries)
    wanted = render(soak, entries) + published.section(entries, older)
    if given.check:
        for name in older:
            print(f"docs/reliability.md: mistakes were planted in an older text of {name} (scripts/mutate)")
        kept_page = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
        stale = published.unmarked(kept_page) != published.unmarked(wanted)
        if stale:
            print("docs/reliability.md is stale: run scripts/reliability", file=sys.stderr)
        return int(stale)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
