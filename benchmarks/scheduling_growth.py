"""How the cost of matching grows with tokens, of a schedule with who runs, of a step with cached nodes. No model."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.scheduling_cost import POLICIES, Bare, growing_running, least
from yaie_engine.invariants import suspicions
from yaie_engine.recorder import Recorder

TARGET = 2.5  # times the cost for twice the size
SIZE = 16  # tokens of a block
DECODES = 64
LONG = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
NODES = [10, 100, 1_000, 10_000, 100_000]
RUNNING = [16, 32, 64, 128, 256, 512]
PIECE = 64  # tokens of a node on a path of many


class Stepping(Bare):
    """The engine's part of a step without its model: checks, schedule, publishing and the flight recorder."""

    def __init__(self, total: int, slots: int) -> None:
        super().__init__("fcfs", total, SIZE, max_num_seqs=slots, max_num_batched_tokens=1 << 20)
        self.recorder = Recorder(64)  # full after few steps: the oldest one then has to go with each new one
        self._ids = itertools.count(10**6)

    def whole_step(self) -> None:
        """What the engine's thread does each step but for forward, sampling and text."""
        if found := suspicions(self.scheduler):
            raise RuntimeError(f"the books are wrong: {found}")
        plan = self.scheduler.schedule()
        sampling = [entry.seq for entry in plan.sampling]
        self.scheduler.complete(plan, [seq.token_ids[-1] + 1 for seq in sampling])
        self.recorder.step(plan, self.scheduler.running, self.scheduler.changes)
        for seq in sampling:
            if seq.num_output_tokens == seq.max_tokens:
                self.recorder.left(seq, "finished")
                self.scheduler.finish(seq, "finished")

    def cache(self, nodes: int) -> None:
        """Prompts of a block each that have nothing in common."""
        for start in range(0, nodes, 1024):
            for _ in range(min(1024, nodes - start)):
                self.ask(1)
            while self.scheduler.waiting or len(self.scheduler.running) > DECODES:
                self.step()

    def ask(self, max_tokens: int) -> None:
        """Queue a prompt that nobody asked before."""
        self.add([next(self._ids), *range(SIZE - 1)], max_tokens)
        self.all.clear()


def growing_match(tokens: int, piece: int) -> float:
    """Microseconds to find a cached prompt of so many tokens, on a path of nodes of `piece` tokens."""
    bare = Bare("fcfs", 2 * tokens // SIZE + 4 * (tokens // piece) + 8, SIZE, max_num_batched_tokens=1 << 20)
    prompt = list(range(tokens))
    for stop in [*range(piece, tokens, piece), tokens]:
        bare.add([*prompt[:stop], 10**7], 1)
        while not bare.scheduler.idle:
            bare.step()
    tree = bare.scheduler.tree

    def once() -> float:
        start = time.perf_counter()
        node = tree.match(prompt)
        took = time.perf_counter() - start
        if node.end != tokens or len(tree.path(node)) != -(-tokens // piece):
            raise RuntimeError(f"{node.end} of {tokens} tokens were found in {len(tree.path(node))} nodes")
        return took

    return least(once)


def growing_nodes(nodes: int, comes: bool) -> float:
    """Microseconds of a step of 64 decodes beside so many cached nodes.

    `comes`: in each step a prompt comes in, for which something cached must go, and the one before it ends.
    """
    bare = Stepping(nodes + DECODES * 8, DECODES + 1024)
    for i in range(DECODES):
        bare.add([i, i], 10**5)
    bare.step()
    bare.cache(nodes)
    while comes and bare.scheduler.pool.num_free:
        bare.ask(1)
        bare.step()

    def once() -> float:
        if comes:
            bare.ask(1)
        start = time.perf_counter()
        bare.whole_step()
        return time.perf_counter() - start

    return least(once)


@dataclass(frozen=True, slots=True)
class Growth:
    """Microseconds of something for each size. `flat`: the largest may cost no more than TARGET times the first."""

    table: str
    name: str
    sizes: tuple[int, ...]
    microseconds: tuple[float, ...]
    flat: bool = False

    @property
    def doublings(self) -> list[float]:
        """Between neighbours, how much more twice the size takes."""
        pairs = zip(itertools.pairwise(self.microseconds), itertools.pairwise(self.sizes), strict=True)
        return [(b / a) ** (1 / math.log2(y / x)) for (a, b), (x, y) in pairs]

    @property
    def over(self) -> bool:
        """Whether it grows faster than the target allows."""
        first, last = self.microseconds[0], self.microseconds[-1]
        return max(self.doublings) > TARGET or (self.flat and last > TARGET * first)

    def __str__(self) -> str:
        cells = "".join(f"{each:>9.1f}" for each in self.microseconds)
        ratios = " ".join(f"{ratio:.2f}" for ratio in self.doublings)
        return f"{self.name:<28}{cells}   {ratios}   {'OVER' if self.over else 'ok'}"


MATCH = "match over tokens"
SCHEDULE = "schedule over running requests"
STEP = f"step of {DECODES} decodes over cached nodes"
NOTES = {
    MATCH: f"microseconds; ratios: twice the tokens, at most {TARGET}",
    SCHEDULE: f"microseconds; nobody waits; ratios: twice the requests, at most {TARGET}",
    STEP: f"microseconds; ratios: twice the nodes; the last at most {TARGET} times the first. Schedule, publishing, "
    "checks and recorder, without the model",
}


def measure(
    tokens: list[int] | None = None, nodes: list[int] | None = None, running: list[int] | None = None
) -> list[Growth]:
    """All tables, row by row."""
    cases: list[tuple[str, str, list[int], Callable[[int], float]]] = [
        (MATCH, "one node", tokens or LONG, lambda size: growing_match(size, size)),
        (MATCH, f"nodes of {PIECE} tokens", tokens or LONG, lambda size: growing_match(size, PIECE)),
        *((SCHEDULE, name, running or RUNNING, partial(growing_running, name)) for name in POLICIES),
        (STEP, "decodes", nodes or NODES, lambda size: growing_nodes(size, False)),
        (STEP, "and one comes, one goes", nodes or NODES, lambda size: growing_nodes(size, True)),
    ]
    return [
        Growth(table, name, tuple(sizes), tuple(map(cost, sizes)), flat=table == STEP)
        for table, name, sizes, cost in cases
    ]


def print_growth(rows: list[Growth]) -> None:
    """All tables."""
    for table, note in NOTES.items():
        found = [row for row in rows if row.table == table]
        print(f"\n{table}, {note}")
        print(f"{'':<28}" + "".join(f"{size:>9}" for size in found[0].sizes))
        for row in found:
            print(row)
