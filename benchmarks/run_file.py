"""What a benchmark found as a file of JSON, with where and when: `scripts/performance` takes it over into a page."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import machine
from benchmarks.comparison.cleaned import without_paths
from benchmarks.comparison.guard import Contention

DOCS = Path(__file__).resolve().parents[1] / "docs"
BUSY = 0.10
"""Of the machine: what others may take beside a run that stands on a page."""


class Begun:
    """A run from its making to `write`. `kind` says to which part of the page it belongs; the words are its command.

    `measured` is another process that does the work, or this one, when the processes it starts do.
    """

    def __init__(self, kind: str, words: Sequence[str], measured: int = 0) -> None:
        self._kind, self._command = kind, shlex.join(words)
        self._started, self._watch = datetime.datetime.now(datetime.UTC), Contention(measured)

    def write(self, path: Path, found: Mapping[str, Any]) -> None:
        """The figures, and beside which other load they came about (0 to 1 of the machine)."""
        run = {
            "kind": self._kind,
            "started": self._started.isoformat(timespec="seconds"),
            "command": self._command,
            "machine": machine.facts(),
            "foreign": round(self._watch.share(), 3),
            **found,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(without_paths(run), indent=1) + "\n", encoding="utf-8")


def measured(run: Mapping[str, Any]) -> str:
    """When, where, at which commit, beside which other load and by which command, in a sentence."""
    facts = run["machine"]
    changed = " with changes" * facts["commit"].endswith("+")
    commit = f" at commit {facts['commit'][:12]}{changed}" if facts["commit"] else ""
    return (
        f"Measured on {run['started'][:10]}{commit}: {facts['cpu']}, {facts['cores']} cores, of which others took "
        f"{run['foreign']:.0%}, by `{run['command']}`."
    )


@dataclass(frozen=True, slots=True)
class RunPart:
    """The part of docs/performance.md about runs of one kind; `lines` is what it says of one, `misses` which of its
    targets one does not meet. The program of that name makes it."""

    kind: str
    lines: Callable[[Mapping[str, Any]], Iterator[str]]
    misses: Callable[[Mapping[str, Any]], Iterator[str]]

    @property
    def BEGIN(self) -> str:
        return f"<!-- {self.kind.replace('_', ' ')}: begin (written by scripts/performance) -->"

    @property
    def END(self) -> str:
        return f"<!-- {self.kind.replace('_', ' ')}: end -->"

    @property
    def RESULTS(self) -> Path:
        return DOCS / f"{self.kind.replace('_', '-')}.json"

    def render(self, run: Mapping[str, Any] | None) -> str:
        """The part between the markers."""
        if run is None:
            return f"**Not measured yet.** `benchmarks/{self.kind} --out build/{self.kind}.json` measures it."
        return "\n".join([measured(run), "", *self.lines(run)])

    def refusal(self, run: Mapping[str, Any]) -> str:
        """Why a run must not stand on the page; "" when it may."""
        return f"others took {run['foreign']:.0%} of the machine, at most {BUSY:.0%}" if run["foreign"] > BUSY else ""

    def joined(self, _: Mapping[str, Any] | None, run: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing of an older run is kept."""
        return dict(run)

    def take_over(self, run: Mapping[str, Any]) -> None:
        """Nothing else belongs to a run."""
