"""`yaie stop`: end engines that notebooks left running, or list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie_magic.cli import DONE, FAILED, complain
from yaie_magic.commands import form
from yaie_magic.options import UsageProblem, option
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

if TYPE_CHECKING:
    from yaie_magic.detached.record import EngineRecord

ABOUT = (
    "End engines that `%yaie load MODEL --detached` has started in notebooks, or list them. What an engine is busy "
    "with is cancelled. One that nobody asks for anything ends by itself after an hour, unless it was loaded with "
    "another --idle-timeout."
)
PLACES = (("name", "?", "the engine [default: the only one]"),)
OPTIONS = (
    option("all", "every detached engine of this user", kind="flag"),
    option("list", "end none: list them", kind="flag"),
    form.JSON,
)
EXAMPLES = (
    ("what runs", "yaie stop --list"),
    ("end the engine called default", "yaie stop default"),
    ("end them all", "yaie stop --all"),
)
FOLDERS = "XDG_RUNTIME_DIR", "where detached engines leave their files, if it is set; else the cache folder"


def parser() -> OptionParser:
    """Its few options."""
    return form.form("stop", ABOUT, OPTIONS, PLACES, examples=EXAMPLES, variables=(FOLDERS,))


def run(arguments: Sequence[str]) -> int:
    """List, or end one or all; 1 when one of them had to be killed."""
    from yaie_magic.detached import registry, table

    given = parser().parse(arguments)
    _check(given)
    listing = registry.look()
    for note in listing.notes:
        complain(note, DONE)
    engines = list(listing.engines.values())
    if given.get("list"):
        if given.get("json"):
            print(json.dumps([table.as_dict(found) for found in engines], indent=2))
        else:
            print("\n".join(table.rows(engines)) if engines else "No detached engine runs.")
        return DONE
    if not given.get("all"):
        engines = [registry.choose(listing, given.get("name"), "yaie stop")]
    elif not engines:
        print("No detached engine runs.")
    return max([_end(found.record) for found in engines], default=DONE)


def _check(given: dict[str, object]) -> None:
    if given.get("json") and not given.get("list"):
        raise UsageProblem("--json is for --list")
    alone = [f"--{flag}" for flag in ("all", "list") if given.get(flag)]
    if "name" in given and alone:
        raise UsageProblem(f"either a name or {alone[0]}, not both")
    if len(alone) > 1:
        raise UsageProblem("either --all or --list, not both")


def _end(record: EngineRecord) -> int:
    from yaie_magic.detached import launch

    orderly = launch.end(record)
    what = f"{printable(record.model)} ({record.name}, process {record.pid})"
    if not orderly:
        return complain(f"{what} did not end by itself and was killed", FAILED)
    print(f"{what} has ended.")
    return DONE
