"""One comparison: load the peers, measure each workload, compare outputs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yaie_magic.bench.trial import Trial
from yaie_magic.bench.workloads import Workload

from .agreement import Agreement, compare
from .peer import OURS, PEERS, Setup
from .rounds import Row, Rules, Say, measure
from .worker import PeerFailed, Worker

CHECKED = {"W1": (1, 128), "W2": (8, 64), "W3": (4, 16), "W3s": (3, 16), "W4": (2, 8), "W5": (3, 8), "nano": (8, 32)}
"""The requests of each workload that are compared, and the most tokens of each: float32 is slow, and many that share a
beginning prove little more than few."""
TIME_IS_UP = "the time was up (--minutes)"
JUDGE = "generate"
"""Its plain model rules on near ties."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run. `check` is the setup in which outputs are compared; None: they are not."""

    peers: list[str]
    workloads: Mapping[str, Callable[[int], Workload]]
    setup: Setup
    check: Setup | None
    rules: Rules
    words: str
    out: Path


class Comparison:
    """Runs a plan once."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan, self._say = plan, say
        self._about: dict[str, dict[str, str]] = {}

    def run(self) -> dict[str, Any]:
        """The parts `peers`, `workloads` and `agreement` of the JSON."""
        with self._workers(self._plan.setup) as workers:
            workloads = [self._measured(name, workers) for name in self._plan.workloads]
            for name, worker in workers.items():
                self._about[name] |= {"memory_mib": f"{worker.peak_bytes / 2**20:.0f}"}
        agreement = [asdict(each) for each in self._compared()] if self._plan.check else []
        return {"peers": self._about, "workloads": workloads, "agreement": agreement}

    @contextlib.contextmanager
    def _workers(self, setup: Setup, note: bool = True) -> Iterator[dict[str, Worker]]:
        """Every peer that can be loaded, loaded; what each is, or why it is missing, is noted."""
        workers: dict[str, Worker] = {}
        try:
            for name in self._plan.peers:
                missing = PEERS[name].missing(setup)
                if not missing:
                    workers[name] = Worker(name, setup, self._plan.out / f"{name.replace(' ', '_')}.log")
                    try:
                        workers[name].load()
                    except PeerFailed as error:
                        missing = f"it could not be loaded: {error}"
                        workers.pop(name).close()
                if note:
                    self._about[name] = {"missing": missing} if missing else workers[name].about
                    self._say(f"{name}: {missing or ', '.join(filter(None, self._about[name].values()))}")
            yield workers
        finally:
            for worker in workers.values():
                worker.close()

    def _measured(self, name: str, workers: Mapping[str, Worker]) -> dict[str, Any]:
        make = self._plan.workloads[name]
        sample = make(0)
        self._say(f"{name}: {sample.words}")
        began = time.monotonic()
        running = [worker for peer, worker in workers.items() if not PEERS[peer].declines(name)]
        rows = [{**row.to_dict(), "declined": False} for row in measure(running, make, self._plan.rules, self._say)]
        for peer in self._plan.peers:
            if peer in workers and (reason := PEERS[peer].declines(name)) and not PEERS[peer].yardstick:
                rows.append({**Row(peer, problem=reason).to_dict(), "declined": True})
        seconds = round(time.monotonic() - began, 1)
        found = {"name": name, "words": sample.words, "size": size(sample), "seconds": seconds, "rows": rows}
        begun = any(row["repetitions"] or row["problem"] for row in rows if not row["declined"])
        return found if begun or not running else {**found, "rows": [], "skipped": TIME_IS_UP}

    def _compared(self) -> Iterator[Agreement]:
        """Each peer's answers in float32 against ours, workload by workload. Nothing is timed."""
        check = self._plan.check
        names = [name for name in self._plan.workloads if name in CHECKED]
        if check is None or not names:
            return
        if self._plan.rules.over:
            self._say(f"outputs are not compared: {TIME_IS_UP}")
            yield from (Agreement(OURS, name, problem=TIME_IS_UP) for name in names)
            return
        self._say(f"comparing outputs in {check.dtype}")
        with self._workers(check, note=False) as workers:
            if OURS not in workers:
                return
            for name in names:
                yield from self._agreements(name, workers)

    def _agreements(self, name: str, workers: Mapping[str, Worker]) -> Iterator[Agreement]:
        workload = self._plan.workloads[name](0).part(*CHECKED[name])
        if self._plan.rules.over:
            yield Agreement(OURS, name, problem=TIME_IS_UP)
            return
        try:
            mine = workers[OURS].run(workload)
        except PeerFailed as error:
            yield Agreement(OURS, name, problem=str(error))
            return
        for peer, worker in workers.items():
            if peer == OURS or PEERS[peer].yardstick or PEERS[peer].declines(name):
                continue
            found = self._one(peer, worker, workload, mine, workers.get(JUDGE))
            self._say(f"  {peer} {name}: {found.equal} equal, {found.tied} tied, {found.different} different")
            yield found

    def _one(self, peer: str, worker: Worker, workload: Workload, mine: Trial, judge: Worker | None) -> Agreement:
        if self._plan.rules.over:
            return Agreement(peer, workload.name, problem=TIME_IS_UP)

        def rule(cases: list[dict[str, Any]]) -> list[float]:
            if judge is None:
                raise PeerFailed(f"{len(cases)} answers differ, and without the peer {JUDGE} nobody can rule on them")
            return judge.judge(cases)

        try:
            return compare(peer, workload, mine, worker.run(workload), rule)
        except PeerFailed as error:
            return Agreement(peer, workload.name, problem=str(error))


def size(workload: Workload) -> str:
    """Requests and tokens, in words."""
    prompt, made = sum(len(ask.prompt) for ask in workload.asks), sum(ask.tokens for ask in workload.asks)
    count = len(workload.asks)
    return f"{count} request{'s' if count > 1 else ''}, {prompt:,} prompt and {made:,} output tokens"
