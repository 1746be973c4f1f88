"""How the cost of matching grows with tokens, and that of a step with the nodes that the tree holds. No model."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

from benchmarks.scheduling_cost import Bare, least
from yaie_engine.invariants import suspicions
from yaie_engine.recorder import Recorder

TARGET = 2.5  # times the cost for twice the size
SIZE = 16  # tokens of a block
DECODES = 64
LONG = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
NODES = [10, 100, 1_000, 10_000, 100_000]
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


def growth_line(name: str, sizes: list[int], cost: Callable[[int], float], flat: bool = False) -> str:
    """Microseconds for each size, how much more twice the size takes, and whether that is within the target."""
    found = [cost(size) for size in sizes]
    pairs = zip(itertools.pairwise(found), itertools.pairwise(sizes), strict=True)
    doublings = [(b / a) ** (1 / math.log2(y / x)) for (a, b), (x, y) in pairs]
    ratios = " ".join(f"{ratio:.2f}" for ratio in doublings)
    over = max(doublings) > TARGET or (flat and found[-1] > TARGET * found[0])
    return f"{name:<28}" + "".join(f"{each:>9.1f}" for each in found) + f"   {ratios}   {'OVER' if over else 'ok'}"


def print_growth(tokens: list[int] | None = None, nodes: list[int] | None = None) -> None:
    """Both tables."""
    tokens, nodes = tokens or LONG, nodes or NODES
    print(f"\nmatch over tokens, microseconds; ratios: twice the tokens, at most {TARGET}")
    print(f"{'':<28}" + "".join(f"{size:>9}" for size in tokens))
    print(growth_line("one node", tokens, lambda size: growing_match(size, size)))
    print(growth_line(f"nodes of {PIECE} tokens", tokens, lambda size: growing_match(size, PIECE)))
    print(f"\nstep of {DECODES} decodes over cached nodes, microseconds; ratios: twice the nodes; the last at most")
    print(f"{TARGET} times the first. Schedule, publishing, checks and recorder, without the model")
    print(f"{'':<28}" + "".join(f"{size:>9}" for size in nodes))
    print(growth_line("decodes", nodes, lambda size: growing_nodes(size, False), flat=True))
    print(growth_line("and one comes, one goes", nodes, lambda size: growing_nodes(size, True), flat=True))
