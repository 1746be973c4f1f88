"""Cancels at any step and in every state a request can be in, over the real engine thread: what is lost or leaks.

`storm(count, seed)` is the run of any size; `python -m tests.fault.cancels 10000 1` prints its figures.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.engine.fakes import LONG, Formula, eventually, greedy
from tests.engine.models import VOCAB
from tests.fault.engines import engine, leaks
from yaie_engine import LLM, Generation
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.sequence import Sequence

CLIENTS = 64
STATES = ("waiting", "follower", "chunked prefill", "decode", "last token", "preempted", "swapped")
"""Where the engine's thread itself finds a request and cancels it. Other cancels come at a step, or from a reader."""
RARE = ("preempted", "swapped")
HEADS = [[head, *range(head + 1, head + 40)] for head in (1, 60, 120)]


@dataclass(slots=True)
class Wish:
    """One request, and when it is to be cancelled: in a state, at the n-th step that it sees, or after n deltas."""

    prompt: list[int]
    max_tokens: int
    n: int
    priority: int
    state: str = ""
    at_step: int = -1
    after_deltas: int = -1
    drop: bool = False


@dataclass(slots=True)
class Storm:
    """What a run came to. `slowest` is the most steps that ran between a cancel and the last block it freed."""

    seed: int
    cancels: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    slowest: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing leaked, no wrong token, and blocks back within two steps."""
        return not (self.lost or self.wrong or self.leaked) and self.slowest <= 2


class Director:
    """Stands before each step, on the engine's thread: sees who is where, and cancels who is where he is wanted."""

    def __init__(self, llm: LLM, storm: Storm) -> None:
        self.llm, self.storm = llm, storm
        self.wishes: dict[str, Wish] = {}
        self.seen: Counter[str] = Counter()
        self.watched: dict[str, tuple[int, list[Sequence]]] = {}
        self.gone: set[str] = set()
        self._lock = threading.Lock()

    def before(self, plan: StepPlan) -> None:
        """A step is about to run."""
        self._watch(plan)
        planned = {entry.seq: entry for entry in plan.batch}
        for request_id, request in list(self.llm._engine.requests.items()):
            wish = self.wishes.get(request_id)
            if wish is None or self._is_cancelled(request_id):
                continue
            self.seen[request_id] += 1
            states = {state_of(choice.seq, planned) for choice in request.live_choices}
            if wish.state in states or self.seen[request_id] == wish.at_step:
                self.cancel(request_id, wish.state or "any step")

    def cancel(self, request_id: str, why: str) -> None:
        """Cancel, and look from now on when its blocks are back. Any thread."""
        request = self.llm._engine.requests.get(request_id)
        with self._lock:
            if request is None or self._is_cancelled(request_id):
                return
            self.watched[request_id] = self.llm.step, [choice.seq for choice in request.choices]
            self.storm.cancels[why] += 1
        self.llm._engine.cancel(request_id)

    def _is_cancelled(self, request_id: str) -> bool:
        return request_id in self.watched or request_id in self.gone

    def _watch(self, plan: StepPlan) -> None:
        pool = self.llm._scheduler.pool
        for request_id, (since, seqs) in list(self.watched.items()):
            late = [seq for seq in seqs if seq.live or seq.block_table or seq in pool.owner or seq in pool.writer]
            if late:
                self.storm.slowest = max(self.storm.slowest, plan.step - since)
            elif request_id not in self.llm._engine.requests and plan.step > since + 2:
                with self._lock:
                    self.gone.add(request_id)
                    del self.watched[request_id]
                self.wishes.pop(request_id, None)
                self.seen.pop(request_id, None)


def state_of(seq: Sequence, planned: dict[Sequence, ScheduledSequence]) -> str:
    """The state of a live sequence in the step that is about to run."""
    if seq.state == "waiting":
        if seq.swapped:
            return "swapped"
        if seq.num_preemptions:
            return "preempted"
        return "follower" if seq.pending or seq.patience is not None else "waiting"
    entry = planned.get(seq)
    if entry is None or not entry.samples:
        return "chunked prefill"
    return "last token" if seq.num_output_tokens == seq.max_tokens - 1 else "decode"


def wishes(count: int, seed: int) -> Iterator[Wish]:
    """Requests of all kinds, most of them cancelled somewhere."""
    rng = random.Random(seed)
    for _ in range(count):
        tail = [rng.randrange(250) for _ in range(rng.randrange(1, 24))]
        prompt = [*rng.choice(HEADS)[: rng.choice([0, 33, 40])], *tail]
        wish = Wish(prompt, rng.randrange(1, 28), rng.choice([1, 1, 1, 2, 3]), rng.randrange(3))
        kind = rng.random()
        if kind < 0.6:
            wish.state = rng.choice(STATES + 2 * RARE)
        elif kind < 0.8:
            wish.at_step = rng.randrange(1, 30)
        elif kind < 0.95:
            wish.after_deltas, wish.drop = rng.randrange(1, 12), rng.random() < 0.3
        yield wish


class Clients:
    """As many threads as there are clients, each with one request at a time."""

    def __init__(self, llm: LLM, director: Director, storm: Storm, todo: Iterator[Wish], enough: int) -> None:
        self.llm, self.director, self.storm, self.todo, self.enough = llm, director, storm, todo, enough
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(CLIENTS)]

    def run(self) -> None:
        """Until there were enough cancels."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            while thread.is_alive():
                thread.join(LONG)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._is_enough or (wish := next(self.todo, None)) is None:
                    return
                self.storm.requests += 1
            try:
                self._ask(wish)
            except Exception as error:
                with self._lock:
                    self.storm.wrong.append(repr(error))
                    return

    @property
    def _is_enough(self) -> bool:
        """As many cancels as were asked for, and every state was met."""
        return self.storm.cancels.total() >= self.enough and all(self.storm.cancels[state] for state in STATES)

    def _ask(self, wish: Wish) -> None:
        params = greedy(wish.max_tokens, n=wish.n, priority=wish.priority, ignore_eos=True)
        handle = self.llm.submit(wish.prompt, params)
        self.director.wishes[handle.request_id] = wish
        if wish.after_deltas >= 0:
            for index, _ in enumerate(handle, 1):
                if index == wish.after_deltas:
                    self.director.cancel(handle.request_id, "any delta")
                    break
            if wish.drop:
                return  # nobody reads the rest
        self._check(handle, wish)

    def _check(self, handle: Generation, wish: Wish) -> None:
        try:
            output = handle.result(LONG)
        except TimeoutError:
            with self._lock:
                self.storm.lost += 1
            return
        right, found = Formula(VOCAB).greedy(wish.prompt, wish.max_tokens), []
        for choice in output.outputs:
            count = len(choice.token_ids)
            if output.error is not None or choice.finish_reason not in ("cancelled", "length"):
                found.append(f"{output.request_id}: {choice.finish_reason} {output.error}")
            if list(choice.token_ids) != right[:count] or (choice.finish_reason == "length") != (count == len(right)):
                found.append(f"{output.request_id}/{choice.index}: {count} tokens, {choice.finish_reason}")
        if found:
            with self._lock:
                self.storm.wrong += found


def storm(count: int, seed: int, overlap: bool = False) -> Storm:
    """Run until `count` requests were cancelled. `overlap`: host work behind running steps, as on a GPU."""
    found = Storm(seed)
    with engine(num_blocks=48, num_cpu_blocks=24, preemption="swap", max_num_seqs=16, max_num_batched_tokens=48) as llm:
        formula, director = Formula(VOCAB), Director(llm, found)
        formula.runner.before = director.before
        llm._engine.runner, llm._engine.overlap = formula.runner, overlap
        Clients(llm, director, found, wishes(4 * count + 100, seed), count).run()
        eventually(lambda: not llm.running())
        found.leaked += leaks(llm)
    return found


if __name__ == "__main__":
    result = storm(int(sys.argv[1]), int(sys.argv[2]))
    print(result)
    sys.exit(not result.ok)
