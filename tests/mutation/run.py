"""The mutation run: `./scripts/mutate [--file F] [--sample N] [--seed S] [--jobs J] [--lines A-B]`."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutation import equivalent
from tests.mutation.jobs import Verdict
from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants_of
from tests.mutation.published import digest
from tests.mutation.targets import TARGETS
from tests.mutation.workers import TestsFailError, verdicts

GATE = 95.0
"""Per cent of the mutants that are not equivalent: so many the tests must catch, of every file."""


@dataclass(slots=True)
class Score:
    """What became of the mutants of one file."""

    equivalent: int = 0
    counts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def judged(self) -> int:
        return sum(self.counts.values())

    @property
    def caught(self) -> int:
        return self.counts["killed"] + self.counts["timed out"]

    @property
    def percent(self) -> float:
        return 100 * self.caught / self.judged if self.judged else 100.0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(
        "mutate", description="Plants small mistakes, one at a time, and runs the quick tests.", allow_abbrev=False
    )
    names = [name.removeprefix("store.") for name in TARGETS]
    parser.add_argument("--file", action="append", metavar="F", help=f"only this one, or these: {', '.join(names)}")
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the sample (default 1)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes side by side (default 2)")
    parser.add_argument("--lines", metavar="A-B", help="only mutants that begin in these lines; needs one --file")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there as well")
    given = parser.parse_args(arguments)
    for name in ("sample", "jobs"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)}: at least 1")
    given.modules = [_module(parser, file, names) for file in given.file or names]
    given.first, given.last = _lines(parser, given)
    command = ["git", "describe", "--always", "--dirty"]  # now: files may change while it runs
    asked = subprocess.run(command, cwd=equivalent.LIST.parent, capture_output=True, text=True, check=False)
    given.commit = asked.stdout.strip()
    given.texts = {module: digest(module) for module in given.modules}
    return given


def _module(parser: argparse.ArgumentParser, file: str, names: list[str]) -> str:
    name = file.removesuffix(".py").replace("/", ".").removeprefix("store.")
    if name not in names:
        parser.error(f"--file {file}: choose from {', '.join(names)}")
    return list(TARGETS)[names.index(name)]


def _lines(parser: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[int, int]:
    if given.lines is None:
        return 1, sys.maxsize
    found = re.fullmatch(r"(\d+)-(\d+)", given.lines)
    if not found or int(found[1]) > int(found[2]):
        parser.error(f"--lines {given.lines}: give the first and the last line, such as 20-45")
    if len(given.modules) != 1:
        parser.error("--lines: which lines are meant is clear for one --file only")
    return int(found[1]), int(found[2])


def chosen(given: argparse.Namespace) -> tuple[list[Mutant], dict[str, Score]]:
    """The mutants to run, and the scores to fill: in them the equivalent ones are counted.

    Raises:
        ListError: the list of equivalent mutants does not fit the code.
    """
    every = {module: mutants_of(module) for module in TARGETS}
    entries = equivalent.read()
    equivalent.check(entries, (mutant for mutants in every.values() for mutant in mutants))
    listed = {entry.key for entry in entries}
    mutants = [each for module in given.modules for each in every[module] if given.first <= each.line <= given.last]
    if given.sample is not None and given.sample < len(mutants):
        drawn = set(random.Random(given.seed).sample(range(len(mutants)), given.sample))
        mutants = [mutant for i, mutant in enumerate(mutants) if i in drawn]
    scores = {module: Score() for module in given.modules}
    for mutant in mutants:
        scores[mutant.module].equivalent += mutant.key in listed
    return [mutant for mutant in mutants if mutant.key not in listed], scores


def judge(mutants: list[Mutant], scores: dict[str, Score], jobs: int) -> Iterator[Mutant]:
    """Run them all and fill the scores; gives those that survive, as they are found."""
    start = time.monotonic()
    for done, (mutant, verdict) in enumerate(verdicts(mutants, TARGETS, jobs), 1):
        scores[mutant.module].counts[verdict] += 1
        if verdict == "survived":
            yield mutant
        if done % 20 == 0 or done == len(mutants):
            print(f"mutate: {done} of {len(mutants)}, {time.monotonic() - start:.0f} s", flush=True)


def table(scores: dict[str, Score]) -> str:
    """A line for each file, and one for all of them."""
    rows = [f"{'file':<18}{'mutants':>8}{'equivalent':>12}{'killed':>8}{'timed out':>11}{'survived':>10}{'caught':>9}"]
    for name, score in {**scores, "all": _total(scores)}.items():
        counts = score.counts
        row = f"{name:<18}{score.judged + score.equivalent:>8}{score.equivalent:>12}{counts['killed']:>8}"
        rows.append(f"{row}{counts['timed out']:>11}{counts['survived']:>10}{score.percent:>7.1f} %")
    return "\n".join(rows)


def _total(scores: dict[str, Score]) -> Score:
    counts = sum((score.counts for score in scores.values()), Counter[Verdict]())
    return Score(sum(score.equivalent for score in scores.values()), counts)


def _figures(given: argparse.Namespace, scores: dict[str, Score], survivors: list[Mutant], complete: bool) -> str:
    """The figures as JSON, with the commit that they are of; `published` reads them."""
    return json.dumps({
        "complete": complete, "whole": not (given.sample or given.lines), "gate": GATE, "seed": given.seed,
        "commit": given.commit, "date": time.strftime("%Y-%m-%d"), "texts": given.texts,
        "files": {name: {"equivalent": score.equivalent, **score.counts} for name, score in scores.items()},
        "survivors": [mutant.key for mutant in survivors],
    })  # fmt: skip


def main(arguments: list[str]) -> int:
    """Exit code 0: enough is caught; 1: not enough, or the list of equivalent mutants is wrong; 2: a wrong call."""
    given = parse(arguments)
    try:
        mutants, scores = chosen(given)
    except equivalent.ListError as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 1
    print(f"mutate: {len(mutants)} mutants, {given.jobs} side by side, seed {given.seed}", flush=True)
    complete = True
    survivors = list[Mutant]()
    try:
        for mutant in judge(mutants, scores, given.jobs):
            survivors.append(mutant)
            print(f"\nsurvived, line {mutant.line}:\n{mutant}\n", flush=True)
    except KeyboardInterrupt:
        complete = False
    except TestsFailError as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 1
    parts = {"the sample": _total(scores)} if given.sample or given.lines else scores
    low = [name for name, score in parts.items() if score.percent < GATE]
    print(f"\n{table(scores)}")
    if given.json:
        given.json.write_text(_figures(given, scores, survivors, complete))
    if not complete:
        print("mutate: interrupted; these are the figures so far")
        return 130
    print(f"mutate: the gate is {GATE:.0f} %: " + (f"missed by {', '.join(low)}" if low else "held"))
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
