"""A runner without a model: the KV of a slot is the tuple of all tokens up to its position, so reads can be checked."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from yaie_engine.host_cache import HostCache
from yaie_engine.invariants import violations
from yaie_engine.look_ahead import holds, look_ahead
from yaie_engine.plan import Guess, StepPlan
from yaie_engine.policies import make_policy
from yaie_engine.radix_tree import Node, RadixTree
from yaie_engine.recorder import Recorder
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence
from yaie_engine.snapshot import StepTimes
from yaie_engine.step_limits import Limits

POISON = ("poison",)
Sample = Callable[[list[int]], int]
KV = list[list[tuple[Any, ...]]]


class ShadowEngine:
    """Scheduler plus a shadow KV; freed blocks are poisoned, every step is checked against the plan's own rules."""

    def __init__(
        self,
        total: int,
        size: int,
        chunk: int = 0,
        budget: int = 8,
        seqs: int = 4,
        watermark: int = 0,
        chunked: bool = True,
        overlap: bool = False,
        policy: str = "fcfs",
        ageing: int = 512,
        shared: int = 32,
        host: int = 0,
        swaps: bool = False,
    ) -> None:
        """`overlap`: each step is guessed while the one before runs, and taken from there when the guess holds."""
        self.overlap, self.guesses = overlap, Counter[str]()
        self.guess: Guess | None = None
        self.host_kv: KV = [[POISON] * size for _ in range(host)]
        cache = HostCache(host, size, swaps, self._move_out, self._move_in)
        limits = Limits(budget, seqs, chunk, chunked, watermark, shared)
        self.scheduler = Scheduler(total, size, limits, make_policy(policy, ageing), cache)
        self.size = size
        self.kv: KV = [[POISON] * size for _ in range(total)]
        self.all: list[Sequence] = []
        self.sample: dict[Sequence, Sample] = {}
        self.eos: dict[Sequence, int | None] = {}
        self.prefill_tokens = self.decode_tokens = self.copies = self.spilled = self.restored = 0
        self.recorder = Recorder(num_steps=3)
        self.ended: set[Sequence] = set()
        self._watch_admissions()

    # ---- host blocks

    def _move_out(self, pairs: list[tuple[int, int]]) -> None:
        self.spilled += len(pairs)
        for source, target in pairs:
            self.host_kv[target] = list(self.kv[source])

    def _move_in(self, pairs: list[tuple[int, int]]) -> None:
        self.restored += len(pairs)
        for source, target in pairs:
            self.kv[target] = list(self.host_kv[source])

    # ---- the front

    def add(
        self,
        prompt: list[int],
        max_tokens: int,
        sample: Sample,
        eos: int | None = None,
        priority: int = 0,
        namespace: str = "",
        read_cache: bool = True,
        private: bool = False,
        leader: Sequence | None = None,
        index: int = 0,
        tenant: str = "",
    ) -> Sequence | None:
        """Queue one sequence, or None when it can never fit."""
        need, total = self.scheduler.fits(len(prompt), max_tokens)
        if not prompt or need > total:
            return None
        serial = len(self.all)
        seq = Sequence(
            serial,
            f"r{serial}",
            list(prompt),
            len(prompt),
            max_tokens,
            priority,
            namespace,
            index=index,
            leader=leader,
            read_cache=read_cache,
            private=private,
            tenant=tenant,
        )
        self.scheduler.add(seq)
        self.recorder.arrived(seq)
        self.all.append(seq)
        self.sample[seq], self.eos[seq] = sample, eos
        return seq

    def fork(
        self, prompt: list[int], n: int, samples: list[Sample], private: bool = False, **kind: Any
    ) -> list[Sequence]:
        """n choices of one prompt."""
        namespace = f"fork{len(self.all)}" if private else ""
        out: list[Sequence] = []
        for i in range(n):
            leader = out[0] if out else None
            seq = self.add(
                prompt, sample=samples[i], namespace=namespace, private=private, leader=leader, index=i, **kind
            )
            if seq is None:
                break
            out.append(seq)
        return out

    # ---- steps

    def step(
        self, stop_planned: tuple[int, str] | None = None, fail: str | None = None, ends: int | None = None
    ) -> StepPlan:
        """Schedule, run on the shadow KV, sample, publish, finish. `ends`: one of the planned ends while it runs."""
        self._poison_free()
        plan = self._schedule()
        self._check_plan(plan)
        if stop_planned is not None and plan.batch:
            self._stop_planned(plan, *stop_planned)
            return plan
        if fail != "copies":
            for source, target in plan.copies:
                self.kv[target] = list(self.kv[source])
        if fail is not None:
            if fail == "forward":
                self._write(plan, garbage=True)
            too_large = self.scheduler.shrink(plan) if fail == "memory" and plan.batch else []
            self.scheduler.abort(plan)
            for seq in too_large:
                self.scheduler.finish(seq, "failed")
        else:
            self._execute(plan, ends)
            self._record(plan)
        self._poison_free()
        self.check()
        return plan

    def _schedule(self) -> StepPlan:
        """The guess when it holds, which must be what the scheduler would plan, to the last block; else a schedule."""
        guess, self.guess = self.guess, None
        if guess is None:
            return self.scheduler.schedule()
        if not holds(self.scheduler, guess):
            self.guesses["wrong"] += 1
            return self.scheduler.schedule()
        self.guesses["right"] += 1
        twin = twin_of(self.scheduler)
        plan = twin.schedule()
        self.scheduler.take(guess)
        assert plan_state(guess.plan) == plan_state(plan) and state_of(self.scheduler) == state_of(twin)
        return guess.plan

    def _look_ahead(self, plan: StepPlan) -> None:
        before = state_of(self.scheduler)
        self.guess = look_ahead(self.scheduler, plan)
        assert state_of(self.scheduler) == before, "a guess changes nothing"
        self.guesses["none"] += self.guess is None

    def _record(self, plan: StepPlan) -> None:
        """The tape replays to what is: tree, tables and queue."""
        scheduler = self.scheduler
        for seq in self.all:
            if not seq.live and seq not in self.ended:
                self.ended.add(seq)
                self.recorder.left(seq, seq.state)
        self.recorder.step(plan, scheduler.running, scheduler.changes)
        self.recorder.timed(plan.step, StepTimes())
        *_, frame = self.recorder.tape().frames()
        nodes = {node.id: node for node in scheduler.tree.nodes() if node.parent is not None}
        assert frame.nodes.keys() == nodes.keys()
        for i, node in nodes.items():
            state = frame.nodes[i]
            assert (state.token_ids, state.blocks, state.start) == (node.token_ids, node.blocks, node.start)
            assert node.parent is not None and state.parent == node.parent.id
            assert (state.used_step, state.namespace) == (node.used_step, node.namespace)
        tables = {label: (table.blocks, table.num_computed) for label, table in frame.tables.items()}
        assert tables == {seq.label: (seq.block_table, seq.computed) for seq in scheduler.running}
        assert frame.waiting.keys() == {seq.label for seq in scheduler.waiting}

    def _stop_planned(self, plan: StepPlan, which: int, how: str) -> None:
        """Something ends or is preempted between plan and run: the plan is dropped, as after a failed step."""
        seq = plan.batch[which % len(plan.batch)].seq
        if how == "cancel":
            self.scheduler.finish(seq, "cancelled")
        else:
            self.scheduler.preempt(seq)
        self.scheduler.abort(plan)
        self.check()

    def _execute(self, plan: StepPlan, ends: int | None = None) -> None:
        self._write(plan)
        for entry in plan.batch:
            self._check_read(entry.seq.block_table, entry.seq.token_ids, entry.stop)
            self.prefill_tokens += entry.num_tokens * (entry.kind == "prefill")
            self.decode_tokens += entry.num_tokens * (entry.kind == "decode")
        self.copies += len(plan.copies)
        sampling = [entry.seq for entry in plan.sampling]
        if ends is not None and plan.batch:
            self.scheduler.finish(plan.batch[ends % len(plan.batch)].seq, "failed")
        if self.overlap:
            self._look_ahead(plan)
        self.scheduler.complete(plan, [self.sample[seq](seq.token_ids) for seq in sampling])
        for seq in sampling:
            if seq.num_output_tokens == seq.max_tokens or seq.token_ids[-1] == self.eos[seq]:
                self.scheduler.finish(seq, "finished")

    def _write(self, plan: StepPlan, garbage: bool = False) -> None:
        pool = self.scheduler.pool
        for entry in plan.batch:
            seq = entry.seq
            for position in range(entry.first_write, entry.stop):
                block = seq.block_table[position // self.size]
                assert pool.writer[block] is seq, "written by a sequence that is not its writer"
                assert sum(other.block_table.count(block) for other in self.scheduler.running) == 1, (
                    "written while read"
                )
                content: tuple[Any, ...] = ("garbage",) if garbage else tuple(seq.token_ids[: position + 1])
                self.kv[block][position % self.size] = content

    def drain(self) -> int:
        """Step until nothing is left; bounded, so that a livelock fails."""
        todo = [*self.scheduler.waiting, *self.scheduler.running]
        bound = 4 + sum(seq.num_prompt_tokens + 2 * seq.max_tokens for seq in todo) * (1 + len(todo))
        steps = 0
        while not self.scheduler.idle:
            self.step()
            steps += 1
            assert steps <= bound, "livelock"
        return steps

    # ---- the truth

    def expected(self, seq: Sequence) -> list[int]:
        """What the sampler gives without any cache."""
        tokens = seq.token_ids[: seq.num_prompt_tokens]
        while True:
            tokens.append(self.sample[seq](tokens))
            if len(tokens) - seq.num_prompt_tokens == seq.max_tokens or tokens[-1] == self.eos[seq]:
                return tokens[seq.num_prompt_tokens :]

    def longest(self, tokens: Seq[int], namespace: str = "") -> int:
        """The longest cached prefix, by brute force over all paths."""
        root = self.scheduler.tree.roots.get(namespace)
        best, stack = 0, [] if root is None else [(root, 0)]
        while stack:
            node, depth = stack.pop()
            same = 0
            while (
                same < len(node.token_ids)
                and depth + same < len(tokens)
                and node.token_ids[same] == tokens[depth + same]
            ):
                same += 1
            best = max(best, depth + same)
            if same == len(node.token_ids):
                stack += [(child, depth + same) for child in node.children.values()]
        return best

    def check(self) -> None:
        """Bookkeeping, every readable slot, every finished output."""
        found = violations(self.scheduler)
        assert not found, found
        for tree, kv in ((self.scheduler.tree, self.kv), (self.scheduler.host.tree, self.host_kv)):
            for node in tree.nodes():
                if node.parent is not None:
                    self._check_node(tree, kv, node)
        for seq in self.scheduler.running:
            self._check_read(seq.block_table, seq.token_ids, seq.computed)
        for seq in self.all:
            if seq.state == "finished":
                assert seq.output_token_ids == self.expected(seq)

    def _check_node(self, tree: RadixTree, kv: KV, node: Node) -> None:
        path = [token for part in tree.path(node) for token in part.token_ids]
        self._check_read(tree.blocks_to(node), path, node.end, kv)
        for i, block in enumerate(node.blocks, node.start // self.size):
            for position in range(i * self.size, min((i + 1) * self.size, node.end)):
                assert kv[block][position % self.size] == tuple(path[: position + 1]), "tree content"

    def _check_read(self, table: list[int], tokens: list[int], context: int, kv: KV | None = None) -> None:
        for position in range(context):
            got = (kv or self.kv)[table[position // self.size]][position % self.size]
            assert got == tuple(tokens[: position + 1]), f"slot {position}: {got}"

    def _check_plan(self, plan: StepPlan) -> None:
        limits = self.scheduler.limits
        targets, sources = {d for _, d in plan.copies}, {s for s, _ in plan.copies}
        assert len(targets) == len(plan.copies) and not targets & sources
        whole = not limits.chunked_prefill
        assert plan.num_tokens <= limits.max_num_batched_tokens or (
            whole and sum(e.num_tokens > 1 for e in plan.batch) == 1
        )
        kinds = [entry.kind for entry in plan.batch]
        assert kinds == sorted(kinds), "decodes come first"
        for entry in plan.batch:
            assert (
                not limits.long_prefill_token_threshold
                or whole
                or entry.num_tokens <= limits.long_prefill_token_threshold
            )
            assert entry.num_tokens == 1 or entry.kind == "prefill"
            assert len(entry.seq.block_table) == self.scheduler.pool.num_blocks(max(entry.stop, entry.seq.valid))
            for block in entry.seq.block_table:
                assert self.scheduler.pool.ref_count[block] > 0, "a block in flight must be held"

    def _poison_free(self) -> None:
        for block in self.scheduler.pool.free_blocks:
            self.kv[block] = [POISON] * self.size
        for block in self.scheduler.host.pool.free_blocks:
            self.host_kv[block] = [POISON] * self.size

    def _watch_admissions(self) -> None:
        """Check the cached-token rule at every admission."""
        admit = self.scheduler._try_admit

        def watched(seq: Sequence) -> bool:
            best = self.longest(seq.token_ids, seq.namespace) if seq.read_cache else 0
            first, copies = seq.num_cached_tokens is None, len(self.scheduler._copies)
            admitted = admit(seq)
            if admitted:
                assert seq.computed == min(best, seq.num_tokens - 1)
                assert not first or seq.num_cached_tokens == seq.computed
                assert len(self.scheduler._copies) <= copies + 1
            return admitted

        self.scheduler._try_admit = watched  # type: ignore[method-assign]


def twin_of(scheduler: Scheduler) -> Scheduler:
    """A copy that can schedule by itself."""
    tree = scheduler.tree
    twin = copy.deepcopy(scheduler, {id(each): each for each in (tree._ids, tree._order, scheduler.host)})
    twin.__dict__.pop("_try_admit", None)  # the watched one belongs to the first
    return twin


def plan_state(plan: StepPlan) -> tuple[Any, ...]:
    """All that a plan says."""
    batch = [(e.seq.label, e.start, e.num_tokens, e.first_write, e.kind, e.samples, e.table) for e in plan.batch]
    return plan.step, batch, plan.copies, plan.released, plan.preempted


def state_of(scheduler: Scheduler) -> tuple[Any, ...]:
    """All that a schedule may change."""
    pool, changes = scheduler.pool, scheduler.changes
    live = [*scheduler.running, *scheduler.waiting]
    return (
        [(seq.label, seq.state, seq.token_ids, list(seq.block_table), seq.computed, seq.valid) for seq in live],
        [(seq.label, seq.rank, seq.waited, seq.queued_step, seq.patience) for seq in live],
        copy.deepcopy(vars(scheduler.policy)),
        (pool.free_blocks, list(pool.ref_count), pool.num_held, pool.moves),
        (scheduler.step, scheduler.tree.step, scheduler._left, list(scheduler._released), list(scheduler._preempted)),
        {seq.label: count for seq, count in scheduler._planned.items()},
        [list(each) for each in (changes.allocated, changes.freed, changes.evicted, changes.split, changes.removed)],
    )


def count_up(tokens: list[int]) -> int:
    """A sampler that never repeats itself."""
    return tokens[-1] + 1


def add(engine: ShadowEngine, prompt: list[int], max_tokens: int = 1, **kind: object) -> Sequence:
    seq = engine.add(prompt, max_tokens=max_tokens, sample=count_up, **kind)  # type: ignore[arg-type]
    assert seq is not None
    return seq


def run(engine: ShadowEngine, prompt: list[int], max_tokens: int = 1, **kind: object) -> Sequence:
    seq = add(engine, prompt, max_tokens, **kind)
    engine.drain()
    return seq


def total_tokens(tree: RadixTree) -> int:
    return sum(len(node.token_ids) for node in tree.nodes())
