"""The measured parts of docs/performance.md, each between its markers, from the JSON of the run it stands for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from . import prefix_store_page, scheduling_page
from .comparison import page as comparison
from .gpu import page as gpu
from .kernel_pages import DETACHED, DISPLAY

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


class Place(Protocol):
    """Between which lines of the page something stands."""

    @property
    def BEGIN(self) -> str: ...

    @property
    def END(self) -> str: ...


class Part(Place, Protocol):
    """What writes one part: a module, or a `RunPart`."""

    @property
    def RESULTS(self) -> Path: ...

    def render(self, run: Mapping[str, Any] | None) -> str:
        """The text between the markers; without a run it says that nothing was measured."""

    def misses(self, run: Mapping[str, Any]) -> Iterator[str]:
        """What a run did not reach: a line for each."""

    def refusal(self, run: Mapping[str, Any]) -> str:
        """Why a run must not stand on the page; "" when it may."""

    def joined(self, kept: Mapping[str, Any] | None, run: Mapping[str, Any]) -> dict[str, Any]:
        """What stands for both from now on, the run that stands there and a new one; ValueError: nothing can."""

    def take_over(self, run: Mapping[str, Any]) -> None:
        """Write what else belongs to a run."""


RUNS = {part.kind: part for part in (scheduling_page.PART, prefix_store_page.PART, DISPLAY, DETACHED)}
PARTS: tuple[Part, ...] = (cast(Part, comparison), cast(Part, gpu), *RUNS.values())
KINDS: dict[str, Part] = {"comparison": PARTS[0], **RUNS}
"""By what a run says of itself; a check of a GPU says nothing."""


def part_of(run: Mapping[str, Any]) -> Part:
    """Where a run belongs."""
    return KINDS.get(run.get("kind", ""), PARTS[1])


@dataclass(frozen=True, slots=True)
class Between:
    """A place on the page."""

    BEGIN: str
    END: str


MISSES = Between("<!-- misses: begin (written by scripts/performance) -->", "<!-- misses: end -->")


def misses(runs: Iterable[tuple[Part, Mapping[str, Any] | None]]) -> str:
    """What the runs that stand on the page did not reach, in one list."""
    lines = []
    for part, run in runs:
        name = part.BEGIN.removeprefix("<!-- ").partition(":")[0]
        found = ["not measured"] if run is None else part.misses(run)
        lines += [f"- {name}: {line}" for line in found]
    return "\n".join(lines or ["None: every figure below meets its target, and no peer is better in any."])


def page_with(part: Place, text: str, wanted: str) -> str:
    """The page with what is between a part's markers replaced.

    Raises:
        ValueError: they are not there.
    """
    head, begin, rest = text.partition(part.BEGIN)
    _, end, tail = rest.partition(part.END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has lost its markers {part.BEGIN} and {part.END}")
    return f"{head}{part.BEGIN}\n{wanted}\n{part.END}{tail}"


def kept_of(part: Part) -> dict[str, Any] | None:
    """The run that stands for a part now."""
    kept: dict[str, Any] | None = None
    if part.RESULTS.is_file():
        kept = json.loads(part.RESULTS.read_text(encoding="utf-8"))
    return kept


def current(text: str) -> str:
    """The page as the results that are kept say it."""
    runs = [(part, kept_of(part)) for part in PARTS]
    for part, run in runs:
        text = page_with(part, text, part.render(run))
    return page_with(MISSES, text, misses(runs))


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is stale; with a path, take over a run first."""
    parser = argparse.ArgumentParser(prog="scripts/performance", description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="the JSON of a run, to be taken over")
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    options = parser.parse_args(arguments)
    if options.run is not None:
        given = json.loads(options.run.read_text(encoding="utf-8"))
        part = part_of(given)
        if refusal := part.refusal(given):
            parser.error(f"{options.run}: {refusal}")
        try:
            given = part.joined(kept_of(part), given)
        except ValueError as error:
            parser.error(f"{options.run}: {error}")
        part.RESULTS.parent.mkdir(parents=True, exist_ok=True)
        part.RESULTS.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
        part.take_over(given)
    text = PAGE.read_text(encoding="utf-8")
    wanted = current(text)
    if options.check:
        if text != wanted:
            print("docs/performance.md is stale: run scripts/performance", file=sys.stderr)
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
