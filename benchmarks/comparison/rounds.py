"""The repetitions: in each round every peer runs once, and whoever was disturbed runs again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from yaie_magic.bench.trial import Trial, figures
from yaie_magic.bench.workloads import Workload, edits

from .guard import Contention
from .peer import PEERS
from .worker import PeerFailed

Say = Callable[[str], None]
WARM_REQUESTS, WARM_TOKENS = 2, 8
"""What the run that does not count is cut to: requests, where they come one after another, and tokens of each."""


class Runs(Protocol):
    """A worker, as far as rounds need it."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def run(self, workload: Workload) -> Trial: ...


class Watch(Protocol):
    """What is seen of other load from its making to `share`."""

    def share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Repetition:
    """Figures of one try, and the share of the machine that others took meanwhile. `edits` has each edit's depth in
    tokens and its milliseconds to the first token, where the workload edits."""

    figures: dict[str, float]
    foreign: float
    tries: int = 1
    edits: tuple[tuple[int, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        found = {"figures": self.figures, "foreign": round(self.foreign, 4), "tries": self.tries}
        return {**found, "edits": [[depth, round(ms, 3)] for depth, ms in self.edits]} if self.edits else found


@dataclass(slots=True)
class Row:
    """A peer in a workload: a repetition for each round, or the problem that ended it."""

    peer: str
    repetitions: list[Repetition] = field(default_factory=list)
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "peer": self.peer,
            "problem": self.problem,
            "repetitions": [each.to_dict() for each in self.repetitions],
        }


@dataclass(frozen=True, slots=True)
class Rules:
    """How often, and when a try counts as disturbed: others took more than `limit` of the machine. It is then made
    again, up to `tries` times in all; the least disturbed one counts, however fast it was. After `until`, by
    `time.monotonic`, nothing is made again and no round begins, the one that does not count included."""

    rounds: int = 3
    limit: float = 0.10
    tries: int = 4
    until: float = math.inf

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until


def measure(
    workers: Sequence[Runs],
    workload_of: Callable[[int], Workload],
    rules: Rules,
    say: Say,
    watch: Callable[[int], Watch] = Contention,
) -> list[Row]:
    """One workload. Before the rounds that count, each peer runs a part of it for nothing: it allocates there. What
    compiles runs all of it. Rows without repetitions and without a problem: the time was up before."""
    rows = [Row(worker.name) for worker in workers]
    for number in range(rules.rounds + 1):
        if rules.over:
            say(f"  the time is up after {max(0, number - 1)} of {rules.rounds} rounds")
            break
        # Peers take turns in being first, so that none always follows the same one.
        order = [(i + number) % len(workers) for i in range(len(workers))]
        for row, worker in ((rows[i], workers[i]) for i in order):
            if row.problem:
                continue
            try:
                make, ruled = (
                    (workload_of, rules) if number else (partial(_warm_up, worker, workload_of), Rules(tries=1))
                )
                found = _least_disturbed(worker, make, number, ruled, watch)
            except PeerFailed as error:
                row.problem = " ".join(str(error).split())
                say(f"  {worker.name}: failed: {row.problem}")
                continue
            if number:
                row.repetitions.append(found)
                say(f"  {worker.name:<11}{number}  {_told(found)}")
    return rows


def _warm_up(worker: Runs, workload_of: Callable[[int], Workload], number: int) -> Workload:
    workload = workload_of(number)
    if worker.name in PEERS and PEERS[worker.name].compiles:
        return workload
    return workload.part(len(workload.asks) if workload.at_once else WARM_REQUESTS, WARM_TOKENS)


def _least_disturbed(
    worker: Runs,
    workload_of: Callable[[int], Workload],
    number: int,
    rules: Rules,
    watch: Callable[[int], Watch],
) -> Repetition:
    best: Repetition | None = None
    for attempt in range(1, rules.tries + 1):
        workload = workload_of(number * 1000 + attempt)  # ids that no cache has seen
        watching = watch(worker.pid)
        trial = worker.run(workload)
        times = tuple((depth, 1000 * trial.served[place].ttft) for place, depth in edits(workload))
        found = Repetition(figures(workload.name, trial), watching.share(), attempt, times)
        if best is None or found.foreign < best.foreign:
            best = found
        if best.foreign <= rules.limit or rules.over:
            break
    if best is None:
        raise ValueError(f"tries={rules.tries}: at least 1")
    return replace(best, tries=attempt)


def _told(found: Repetition) -> str:
    values = "  ".join(f"{name} {value:.4g}" for name, value in found.figures.items())
    return f"{values}  others {found.foreign:.0%}" + (f" after {found.tries} tries" if found.tries > 1 else "")
