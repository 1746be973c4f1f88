"""Row 19: what twice as much costs. Work is counted in lines of our own code that run, which is the same everywhere."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.unit.text.builders import byte_level
from yaie_engine import SamplingParams
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.policies import make_policy
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits
from yaie_engine.stop import StopMatcher

from .figure import Figure

MOST_RATIO = 2.5
SMALLEST = 64
Work = Callable[[], object]


class Bench:
    """A scheduler with its tree and pool; each sequence decodes the token that its position names."""

    def __init__(self, blocks: int, **limits: Any) -> None:
        self.scheduler = Scheduler(blocks, 16, Limits(watermark=0, **limits), make_policy("fcfs"))
        self.count = 0

    def add(self, prompt: list[int], most: int = 1) -> Sequence:
        """Queue one."""
        seq = Sequence(self.count, f"r{self.count}", list(prompt), len(prompt), most)
        self.count += 1
        self.scheduler.add(seq)
        return seq

    def step(self) -> None:
        """One step, all of it."""
        plan = self.scheduler.schedule()
        sampling = [entry.seq for entry in plan.sampling]
        self.scheduler.complete(plan, [seq.num_tokens % 251 for seq in sampling])
        for seq in sampling:
            if seq.num_output_tokens == seq.max_tokens:
                self.scheduler.finish(seq, "finished")
        self.scheduler.changes.take()

    def drain(self) -> None:
        """Until nothing is left."""
        while not self.scheduler.idle:
            self.step()


def filled(nodes: int, chance: random.Random, length: int = 40) -> Bench:
    """A tree with about so many leaves."""
    bench = Bench(nodes * (length // 16 + 2) + 64, max_num_batched_tokens=10**6, max_num_seqs=64)
    for _ in range(nodes):
        bench.add([chance.randrange(1000) for _ in range(length)])
    bench.drain()
    return bench


def match_tokens(size: int, chance: random.Random) -> Work:
    """The match of a prompt of `size` tokens that is cached in pieces of 16."""
    bench = Bench(size + 64, max_num_batched_tokens=10**6)
    prompt = [chance.randrange(1000) for _ in range(size)]
    for end in range(16, size + 1, 16):
        bench.add(prompt[:end])
        bench.drain()
    return lambda: bench.scheduler.tree.match(prompt)


def match_nodes(size: int, chance: random.Random) -> Work:
    """The match of a cached prompt in a tree of `size` leaves."""
    bench = filled(size, chance)
    prompt = [1000 + position for position in range(40)]
    bench.add(prompt)
    bench.drain()
    return lambda: bench.scheduler.tree.match(prompt)


def insert(size: int, chance: random.Random) -> Work:
    """`size` prompts computed, published and ended."""
    return lambda: filled(size, chance)


def evict(size: int, chance: random.Random) -> Work:
    """`size` leaves evicted one by one."""
    tree = filled(size, chance).scheduler.tree

    def work() -> None:
        while tree.evict_one():
            pass

    return work


def schedule(size: int, chance: random.Random) -> Work:
    """One step of `size` decodes."""
    bench = Bench(8 * size, max_num_batched_tokens=10**6, max_num_seqs=size)
    for _ in range(size):
        bench.add([chance.randrange(1000) for _ in range(8)], 50)
    bench.step()
    return bench.step


def stop_match(size: int, chance: random.Random) -> Work:
    """A text of `size` characters that always looks as if a stop string began."""
    matcher = StopMatcher(["a" * 50 + "b", "a" * 31 + "c"], {}, False)
    return lambda: [matcher.feed("a" * chance.randrange(1, 3)) for _ in range(size)]


def detokenize(size: int, chance: random.Random) -> Work:
    """`size` tokens to text, characters of several bytes among them, with a stop string that never comes."""
    params = SamplingParams(stop=["never said"])
    token_ids = [chance.randrange(2, 256) for _ in range(size)]
    detokenizer = Detokenizer(byte_level(), [], params)
    return lambda: [*map(detokenizer.push, token_ids), detokenizer.text]


OPS: dict[str, Callable[[int, random.Random], Work]] = {
    "match over tokens": match_tokens,
    "match over nodes": match_nodes,
    "insert": insert,
    "evict": evict,
    "schedule": schedule,
    "stop match": stop_match,
    "detokenize": detokenize,
}


def lines_run(work: Work) -> int:
    """How many lines of the engine run."""
    count = 0
    home = str(Path(sys.modules["yaie_engine"].__file__ or "").parent)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(home):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def seconds(work: Work) -> float:
    """Processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def doubling(size: int, seed: int) -> Figure:
    """Each operation at 64, 128, ... up to `size`: lines that run, and processor time beside them."""
    sizes = [SMALLEST]
    while sizes[-1] * 2 <= size:
        sizes.append(sizes[-1] * 2)
    faults, worst, times = [], 0.0, []
    for name, prepare in OPS.items():
        lines = [lines_run(prepare(each, random.Random(seed))) for each in sizes]
        taken = [min(seconds(prepare(each, random.Random(seed))) for _ in range(3)) for each in sizes[-2:]]
        ratios = [after / before for before, after in itertools.pairwise(lines)]
        worst = max(worst, *ratios)
        times.append(f"{name} {taken[-1] / max(taken[0], 1e-7):.1f}")
        faults += [f"{name}: {lines} lines at {sizes}" for ratio in ratios if ratio > MOST_RATIO][:1]
    done = f"{len(OPS)} operations, {sizes[0]} to {sizes[-1]}"
    return Figure(done, f"worst ratio of lines {worst:.2f}", tuple(faults), "last ratio of time: " + ", ".join(times))
