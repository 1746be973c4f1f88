"""The scheduler alone: what a schedule costs as queues grow, and what policies and shared prefills save."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

from yaie_engine import policy as policies
from yaie_engine.plan import StepPlan
from yaie_engine.policies import make_policy
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits

POLICIES = ("fcfs", "lpm", "priority", "fair")
REPEATS = 7
PROMPT = 256  # tokens of a waiting prompt, half of which others share


class Bare:
    """A scheduler whose sequences count up; no model, no engine."""

    def __init__(self, policy: str, total: int, size: int = 16, **limits: Any) -> None:
        self.scheduler = Scheduler(total, size, Limits(watermark=0, **limits), make_policy(policy))
        self.all: list[Sequence] = []

    def add(self, prompt: list[int], max_tokens: int, **kind: Any) -> Sequence:
        """Queue one."""
        seq = Sequence(len(self.all), f"r{len(self.all)}", prompt, len(prompt), max_tokens, **kind)
        self.all.append(seq)
        self.scheduler.add(seq)
        return seq

    def complete(self, plan: StepPlan) -> None:
        """The step succeeded."""
        sampling = [entry.seq for entry in plan.sampling]
        self.scheduler.complete(plan, [seq.token_ids[-1] + 1 for seq in sampling])
        for seq in sampling:
            if seq.num_output_tokens == seq.max_tokens:
                self.scheduler.finish(seq, "finished")
        self.scheduler.changes.take()

    def step(self) -> StepPlan:
        """One step."""
        plan = self.scheduler.schedule()
        self.complete(plan)
        return plan

    def run(self, running: int) -> None:
        """Let so many decode for a long time."""
        for i in range(running):
            self.add([i, i], 10**5)
        while self.scheduler.waiting:
            self.step()
        self.step()

    def wait(self, waiting: int) -> None:
        """Let so many wait: groups with one head each, of several tenants and priorities, half of them cached."""
        rng = random.Random(0)
        for i in range(waiting):
            head = [10**6 + rng.randrange(waiting // 8 + 1)] * (PROMPT // 2)
            tail = [10**7 + i] * (PROMPT // 2)
            self.add(head + tail, 8, tenant=f"t{rng.randrange(16)}", priority=0)


def least(once: Callable[[], float]) -> float:
    """Microseconds."""
    return min(once() for _ in range(REPEATS)) * 1e6


def schedule_time(bare: Bare) -> float:
    """Seconds of one schedule, whose step is then carried out."""
    start = time.perf_counter()
    plan = bare.scheduler.schedule()
    took = time.perf_counter() - start
    bare.complete(plan)
    return took


def growing_running(policy: str, running: int) -> float:
    """All decode, nobody waits."""
    bare = Bare(policy, 16 * running + 64, max_num_seqs=running, max_num_batched_tokens=4 * running)
    bare.run(running)
    return least(lambda: schedule_time(bare))


def growing_waiting(policy: str, waiting: int, slots: int, total: int) -> float:
    """64 decode; `slots` more could, in `total` more blocks."""
    bare = Bare(policy, 64 * 40 + total, max_num_seqs=64 + slots, max_num_batched_tokens=512)
    bare.run(64)
    bare.wait(waiting)
    times = []
    for _ in range(REPEATS):
        times.append(schedule_time(bare))
        for seq in [seq for seq in bare.scheduler.running if seq.num_prompt_tokens == PROMPT]:
            bare.scheduler.finish(seq, "finished")  # the next schedule finds the same room
    return min(times) * 1e6


def print_growth(title: str, sizes: list[int], cost: Callable[[str, int], float]) -> None:
    """A line for each policy: microseconds for each size, and the ratios between neighbours."""
    print(f"\n{title}\n{'policy':<10}" + "".join(f"{size:>9}" for size in sizes) + "   ratios")
    for policy in POLICIES:
        found = [cost(policy, size) for size in sizes]
        ratios = " ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(found))
        print(f"{policy:<10}" + "".join(f"{each:>9.0f}" for each in found) + f"   {ratios}")


def burst(count: int, shared: int, fixed: int, least_shared: int, chunk: int = 512) -> tuple[float, float, int]:
    """Mean and latest time to the first token of a burst, and the prompt tokens computed.

    `count` prompts with `shared` equal tokens and 16 own ones. A step costs `fixed` plus its tokens.
    """
    bare = Bare("fcfs", 8192, max_num_batched_tokens=chunk, shared_prefill=least_shared)
    for i in range(count):
        bare.add([*range(shared), *range(10**6 * (i + 1), 10**6 * (i + 1) + 16)], 4)
    clock, first = 0, dict[Sequence, int]()
    computed = 0
    while not bare.scheduler.idle:
        plan = bare.step()
        clock += fixed + plan.num_tokens
        computed += sum(entry.num_tokens for entry in plan.batch if entry.kind == "prefill")
        for entry in plan.sampling:
            first.setdefault(entry.seq, clock)
    return sum(first.values()) / count, max(first.values()), computed


def print_bursts() -> None:
    """Everybody for himself against followers, by shared tokens and the fixed cost of a step."""
    print("\nBursts with one head: time to first token with followers / without (mean, latest), tokens computed")
    for count in (2, 4, 16):
        for fixed in (16, 64, 256):
            cells = []
            for shared in (16, 32, 64, 128, 256):
                mine, alone = burst(count, shared, fixed, 16), burst(count, shared, fixed, 0)
                cells.append(f"{shared:>4}: {mine[0] / alone[0]:.2f} {mine[1] / alone[1]:.2f} {mine[2]}/{alone[2]}")
            print(f"{count:>3} requests, step = {fixed:>3} tokens   " + "   ".join(cells))


def print_windows() -> None:
    """Prompt tokens computed of a shuffled queue of groups, in a pool that holds a few of their heads."""
    print("\nQueue of 1,024 (128 groups of 8, heads of 256 tokens), shuffled: tokens computed, ms of all schedules")
    before = policies.WINDOW
    for name, window in [("fcfs", 0), *(("lpm", size) for size in (16, 32, 64, 128, 256, 1024))]:
        policies.WINDOW = window or before
        rng = random.Random(1)
        bare = Bare(name, 512, max_num_seqs=16, max_num_batched_tokens=512)
        asks = [[*[10**6 + i] * 256, 10**7 + i, 10**8 + j] for i in range(128) for j in range(8)]
        rng.shuffle(asks)
        for ask in asks:
            bare.add(ask, 4)
        spent, computed = 0.0, 0
        while not bare.scheduler.idle:
            start = time.perf_counter()
            plan = bare.scheduler.schedule()
            spent += time.perf_counter() - start
            computed += sum(entry.num_tokens for entry in plan.batch if entry.kind == "prefill")
            bare.complete(plan)
        label, steps = f"{name} {window}" if window else name, bare.scheduler.step
        print(f"{label:<10}{computed:>9} of {sum(map(len, asks))}{1000 * spent:>9.0f} ms in {steps} steps")
    policies.WINDOW = before


def print_policies() -> None:
    """What a schedule costs under each policy, and what policies and shared prefills save."""
    waiting = [128, 256, 512, 1024, 2048, 4096]
    print_growth("waiting, full", waiting, lambda name, size: growing_waiting(name, size, 0, 4096))
    print_growth("waiting, admits", waiting, lambda name, size: growing_waiting(name, size, 4, 4096))
    print_growth("waiting, no room", waiting, lambda name, size: growing_waiting(name, size, 4, 8))
    print_windows()
    print_bursts()
