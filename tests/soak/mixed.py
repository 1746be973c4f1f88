"""Row 24: everything at once, round after round, with a store, host blocks and a pool that is too small.

Between two rounds nothing runs: then threads, descriptors and memory are counted, and the books are checked.
"""

from __future__ import annotations

import gc
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from tests.engine.fakes import LONG, eventually
from yaie_engine import LLM, RequestOutput, SamplingParams
from yaie_engine.channel import Channel

from .figure import Figure
from .serving import megabytes
from .slope import slope

CLIENTS, REQUESTS = 8, 6
HEADS = [f"Once upon a time there was a {animal} who lived by the {place}. " * 4 for animal, place in
         (("fox", "river"), ("bear", "sea"), ("crow", "road"), ("mouse", "mill"))]  # fmt: skip
TAILS = ("It saw", "Then the", "One day")
WARM_ROUNDS = 2


class Client(threading.Thread):
    """Asks, reads, leaves, cancels; what it reads to the end greedily must be what the engine said alone."""

    def __init__(self, llm: LLM, wanted: dict[str, str], seed: int) -> None:
        super().__init__(daemon=True)
        self.llm, self.wanted, self.chance = llm, wanted, random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        """So many requests."""
        for _ in range(REQUESTS):
            try:
                self.once()
            except Exception as error:
                self.faults.append(repr(error)[:200])

    def once(self) -> None:
        """One, in one of many ways."""
        chance, prompt = self.chance, self.chance.choice(list(self.wanted))
        way = chance.choice(["read", "read", "read", "sampled", "several", "cancel", "drop", "late", "scored"])
        params = SamplingParams(
            max_tokens=24,
            ignore_eos=True,
            temperature=0 if way != "sampled" else 0.8,
            n=3 if way == "several" else 1,
            stop=["never said at all"] if chance.random() < 0.3 else [],
            timeout=0.05 if way == "late" else None,
            prompt_logprobs=1 if way == "scored" else None,
            logprobs=chance.choice([None, 2]),
            cache_salt=chance.choice([None, None, None, "salt"]),
            priority=chance.choice([0, 0, 1]),
        )
        handle = self.llm.submit(prompt, params)
        if way == "drop":
            return
        if way == "cancel":
            time.sleep(chance.random() * 0.05)
            handle.cancel()
        output = handle.result(LONG)
        self.check(output, prompt, greedy=params.temperature == 0)

    def check(self, output: RequestOutput, prompt: str, greedy: bool) -> None:
        """Its text is the beginning of what is right, and all of it when it ended by itself."""
        for choice in output.outputs:
            self.outcomes[str(choice.finish_reason)] += 1
            right = self.wanted[prompt]
            whole = choice.finish_reason == "length"
            if greedy and (not right.startswith(choice.text) or (whole and choice.text != right)):
                self.faults.append(f"{choice.finish_reason}: {choice.text!r} is not {right!r}")


@contextmanager
def terminals() -> Iterator[Counter[str]]:
    """How often each request of the process ended."""
    counts: Counter[str] = Counter()
    end = Channel.end

    def counted(channel: Channel, output: RequestOutput) -> None:
        counts[output.request_id] += 1
        end(channel, output)

    Channel.end = counted  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Channel.end = end  # type: ignore[method-assign]


def census() -> tuple[int, int]:
    """Threads and open descriptors of this process."""
    gc.collect()
    return threading.active_count(), psutil.Process().num_fds()


def grown(before: tuple[int, int]) -> list[str]:
    """Threads or descriptors that there are more of than after the first rounds, once what was ending has ended."""
    end = time.monotonic() + 10
    while (now := census()) != before and time.monotonic() < end:
        time.sleep(0.1)
    return [] if now[0] <= before[0] and now[1] <= before[1] else [f"threads and descriptors: {before}, then {now}"]


@dataclass
class Rounds:
    """All rounds over one engine."""

    llm: LLM
    seed: int
    faults: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def run(self, size: int) -> None:
        """So many; threads and descriptors are those of the third."""
        wanted, before = answers(self.llm), (0, 0)
        for number in range(size):
            self.once(wanted, self.seed + 1000 * number)
            self.faults += [f"after round {number}: {fault}" for fault in between(self.llm)]
            if number == WARM_ROUNDS:
                before = census()
            gc.collect()
            self.times.append(time.monotonic())
            self.sizes.append(megabytes())
        if size > WARM_ROUNDS:
            self.faults += grown(before)

    def once(self, wanted: dict[str, str], seed: int) -> None:
        """All clients at once."""
        clients = [Client(self.llm, wanted, seed + i) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(5 * LONG)
            self.faults += ["a client hangs"] if client.is_alive() else client.faults
            self.outcomes += client.outcomes

    @property
    def memory(self) -> str:
        """What was measured beside."""
        found = slope(self.times, self.sizes)
        grown = f"memory {self.sizes[-1] - self.sizes[0]:+.1f} MB since the first round"
        return f"{grown}; {found or 'too few rounds to tell a slope'}"


def mixed(size: int, seed: int) -> Figure:
    """`size` rounds of 8 clients with 6 requests each."""
    torch.set_num_threads(1)
    requests = size * CLIENTS * REQUESTS
    with tempfile.TemporaryDirectory() as folder:
        settings = {"prefix_store": str(Path(folder) / "store"), "num_cpu_blocks": 64, "preemption": "swap"}
        with LLM("tiny", num_blocks=26, recorder_steps=64, max_num_seqs=6, **settings) as llm, terminals() as ends:
            rounds = Rounds(llm, seed)
            rounds.run(size)
            counters = llm.snapshot().counters
    faults = rounds.faults + [f"{count} ends of {name}" for name, count in ends.items() if count != 1]
    if len(ends) != requests + len(HEADS) * len(TAILS):
        faults.append(f"{requests} requests, {len(ends)} ended")
    told = ", ".join(f"{count} {name}" for name, count in sorted(rounds.outcomes.items()))
    did = f"{counters.preemptions} preemptions, {counters.evictions} evictions"
    return Figure(f"{requests} requests", f"{len(faults)} faults; {told}; {did}", tuple(faults), rounds.memory)


def answers(llm: LLM) -> dict[str, str]:
    """What each prompt gets when it is alone."""
    prompts = [head + tail for head in HEADS for tail in TAILS]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    return {prompt: llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].text for prompt in prompts}


def between(llm: LLM) -> list[str]:
    """What is wrong while nothing runs."""
    eventually(lambda: not llm.running())
    llm.check()
    blocks = llm.snapshot().blocks
    if blocks.held or blocks.free + blocks.cached != blocks.total:
        return [str(blocks)]
    return []
