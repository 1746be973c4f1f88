"""One schedule, no phases: every sequence has computed tokens that catch up with its tokens.

A step fills one token budget, decodes first, then prefill chunks, then newly admitted sequences. The idea of one
budget for both phases is vLLM's; the rules of blocks and tree are in `block_pool` and `radix_tree`. Imports no torch.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from .block_pool import BlockPool
from .changes import Changes
from .errors import InvariantError
from .plan import Guess, ScheduledSequence, StepPlan, decodes_first
from .policy import POLICIES
from .radix_tree import Node, RadixTree
from .sequence import Admission, Sequence, SequenceState


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step may hold. A threshold of 0 means no limit; without `chunked_prefill` prompts run whole."""

    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    watermark: int | None = None


class Scheduler:
    """Waiting and running sequences over one pool and one tree. Mutated on the engine thread only."""

    def __init__(self, num_blocks: int, block_size: int, limits: Limits | None = None, policy: str = "fcfs") -> None:
        self.changes = Changes()
        self.pool = BlockPool(num_blocks, block_size, self.changes)
        self.tree = RadixTree(self.pool)
        self.limits = limits or Limits()
        self.watermark = max(1, num_blocks // 100) if self.limits.watermark is None else self.limits.watermark
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.step = 0
        self._key = POLICIES[policy]
        self._order = 0
        self._cut = 0
        self._planned: dict[Sequence, int] = {}
        self._left = 0
        self._copies: dict[Sequence, tuple[int, int]] = {}
        self._released: list[int] = []
        self._preempted: list[str] = []
        self._private: dict[str, int] = {}

    # ---- the front: add, finish

    def fits(self, num_prompt_tokens: int, max_tokens: int) -> tuple[int, int]:
        """(blocks needed, blocks in all). The last sampled token is never computed: it needs no slot."""
        return self.pool.num_blocks(num_prompt_tokens + max_tokens - 1), self.pool.total

    def room(self, num_prompt_tokens: int) -> int:
        """The largest max_tokens that fits; below 1 when the prompt alone is too long."""
        return self.pool.total * self.pool.block_size + 1 - num_prompt_tokens

    def add(self, seq: Sequence) -> None:
        """Queue a sequence; the caller has checked that it fits."""
        if seq.private:
            self._private[seq.namespace] = self._private.get(seq.namespace, 0) + 1
        bisect.insort(self.waiting, seq, key=self._key)

    def finish(self, seq: Sequence, state: SequenceState) -> None:
        """End a live sequence in any state; its blocks stay cached while memory lasts."""
        if not seq.live:
            return
        if seq.state == "waiting":
            self.waiting.remove(seq)
        else:
            self._stop_running(seq)
        seq.state = state
        if seq.private:
            self._private[seq.namespace] -= 1
            if not self._private[seq.namespace]:
                del self._private[seq.namespace]
                self.tree.drop_namespace(seq.namespace)

    def preempt(self, seq: Sequence) -> None:
        """Take a running sequence's blocks; it keeps its tokens and is matched again when it is admitted again."""
        self._put_back(seq)
        self.num_preemptions += 1
        seq.num_preemptions += 1
        self._preempted.append(seq.label)

    def _put_back(self, seq: Sequence) -> None:
        self._stop_running(seq)
        seq.state = "waiting"
        bisect.insort(self.waiting, seq, key=self._key)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    @property
    def admits(self) -> bool:
        """Whether the next step may admit somebody."""
        return bool(self.waiting) and len(self.running) < self.limits.max_num_seqs

    @property
    def budget(self) -> int:
        """The most tokens of the next step, but for a prompt that must go in whole."""
        return self.limits.max_num_batched_tokens - self._cut

    @property
    def next_budget(self) -> int:
        """The budget after a step that succeeds."""
        return self.limits.max_num_batched_tokens - max(0, self._cut - 1)

    # ---- plan one step

    def schedule(self) -> StepPlan:
        """Decide the next step. Its blocks are taken and its copies planned, but nothing counts as computed yet."""
        self._planned, self._copies = {}, {}
        self._left = self.budget
        self.tree.step = self.step + 1
        before = self.num_preemptions
        self._plan_running()
        if self.num_preemptions == before:  # what was just preempted is not admitted in the same step
            self._admit_waiting()
        if self._planned:
            self.step += 1
        entry = ScheduledSequence.of
        batch = [entry(seq, seq.computed, count, seq.num_tokens) for seq, count in self._planned.items()]
        plan = self.plan_of(self.step, batch, list(self._copies.values()))
        if batch:  # a step that runs nothing tells nobody
            self._released, self._preempted = [], []
        return plan

    def plan_of(self, step: int, batch: list[ScheduledSequence], copies: list[tuple[int, int]]) -> StepPlan:
        """A plan with what the runner has not heard yet."""
        return StepPlan(step, decodes_first(batch), copies, self._released, self._preempted)

    def take(self, guess: Guess) -> None:
        """Plan the step of a guess that holds: all that `schedule` would have done."""
        self._planned, self._copies = {}, {}
        self._left = self.budget
        self.step = self.tree.step = guess.plan.step
        for entry in guess.order:
            seq = entry.seq
            seq.block_table += [self.pool.allocate(seq) for _ in entry.table[len(seq.block_table) :]]
            if seq.block_table[-1] != entry.table[-1] or len(seq.block_table) != len(entry.table):
                raise InvariantError([f"{seq.label} runs with blocks that it does not have"])
            self._plan(seq, entry.num_tokens)
        self._released, self._preempted = [], []

    def _plan_running(self) -> None:
        for seq in sorted(self.running, key=lambda s: (s.remaining > 1, -s.priority, s.admitted)):
            if seq.state != "running":
                continue
            count = self._chunk(seq.remaining)
            if count and self._make_room(seq, seq.computed + count):
                self._plan(seq, count)

    def _plan(self, seq: Sequence, count: int) -> None:
        self._planned[seq] = count
        self._left -= count

    def _make_room(self, seq: Sequence, num_tokens: int) -> bool:
        """Reserve, preempting others for it; False when `seq` itself was the victim in the end."""
        while not self._reserve(seq, num_tokens):
            victim = self._victim()
            self.preempt(victim)
            if victim is seq:
                return False
        return True

    def _chunk(self, remaining: int) -> int:
        """How many of a sequence's remaining tokens this step can take; 0 when its turn is later."""
        return self.share(remaining, self._left, self._planned.values())

    def share(self, remaining: int, left: int, planned: Iterable[int]) -> int:
        """The same with `left` tokens to go, of which others take `planned`."""
        if remaining == 1:
            return min(1, max(0, left))
        if not self.limits.chunked_prefill:
            return remaining if remaining <= left or all(n <= 1 for n in planned) else 0
        longest = self.limits.long_prefill_token_threshold or remaining
        return max(0, min(remaining, longest, left))

    def _victim(self) -> Sequence:
        """The last admitted of the lowest priority."""
        return min(self.running, key=lambda s: (s.priority, -s.admitted))

    def _reserve(self, seq: Sequence, num_tokens: int) -> bool:
        """Grow the block table to hold `num_tokens`; False when that many blocks are not to be had."""
        need = self.pool.num_blocks(num_tokens) - len(seq.block_table)
        if need > self.pool.num_available:
            return False
        self.tree.evict(need)
        seq.block_table += [self.pool.allocate(seq) for _ in range(need)]
        return True

    # ---- admission

    def _admit_waiting(self) -> None:
        for seq in self.waiting[:]:
            if len(self.running) >= self.limits.max_num_seqs:
                return
            if _leader_pending(seq):
                continue
            if not self._admit(seq):
                return

    def _admit(self, seq: Sequence) -> bool:
        while not self._try_admit(seq):
            if self.running:
                return False
            # Alone and still too large: the match is the most recent path, so evicting leaf by leaf ends with the
            # sequence taking over the tail of its match, and no matched token is lost.
            if self._chunk(seq.remaining) == 0 or not self.tree.evict_one():
                return False
        self.waiting.remove(seq)
        self.running.append(seq)
        self._order += 1
        seq.admitted, seq.state = self._order, "running"
        return True

    def _try_admit(self, seq: Sequence) -> bool:
        """Hold the match, then take the blocks of the first chunk; all or nothing."""
        pool = self.pool
        node = self.tree.match(seq.token_ids, seq.namespace) if seq.read_cache else Node(-1, None, 0, [], [])
        hit = node.end
        computed = min(hit, seq.num_tokens - 1)
        count = self._chunk(seq.num_tokens - computed)
        if not count:
            return False
        blocks = self.tree.blocks_to(node)
        source = blocks[-1] if hit % pool.block_size else None
        takes_over = source is not None and not node.children and not pool.ref_count[source]
        shared = blocks if source is None or takes_over else blocks[:-1]
        for block in blocks:  # held first: what the match needs is not available any more
            pool.hold(block)
        need = pool.num_blocks(max(computed + count, hit)) - len(shared)
        if need + (self.watermark if self.running else 0) > pool.num_available:
            for block in blocks:
                self._release(block)
            return False
        self.tree.evict(need)
        seq.block_table, seq.computed, seq.valid = shared + [pool.allocate(seq) for _ in range(need)], computed, hit
        copy = None
        if source is not None and takes_over:
            pool.writer[source] = seq
        elif source is not None:
            copy = (source, seq.block_table[hit // pool.block_size])
            self._copies[seq] = copy  # the source stays held until the copy has run
        self._note_admission(seq, node, shared, copy)
        self._plan(seq, count)
        return True

    def _note_admission(self, seq: Sequence, node: Node, shared: list[int], copy: tuple[int, int] | None) -> None:
        if seq.num_cached_tokens is None:
            seq.num_cached_tokens = seq.computed
        seq.prefill_end = seq.num_tokens
        matched = tuple((part.id, len(part.token_ids)) for part in self.tree.path(node))
        seq.admissions.append(Admission(self.step + 1, seq.num_tokens, seq.computed, matched, tuple(shared), copy))

    # ---- after the forward

    def complete(self, plan: StepPlan, sampled: Seq[int | None]) -> None:
        """The step succeeded: advance, append the sampled tokens (in `plan.sampling` order) and publish to the tree.

        None stands for a row that gave no token: nothing of it is published, and the caller must finish its sequence.
        What ended while the step ran is passed over.
        """
        self.changes.copied += plan.copies
        for source, _ in self._copies.values():
            self._release(source)
        self._copies = {}
        tokens = iter(sampled)
        for entry in plan.batch:
            seq = entry.seq
            token = next(tokens) if entry.samples else None
            if seq.state != "running":
                continue
            seq.num_computed_total += entry.num_tokens
            if entry.samples:
                if token is None:
                    continue
                seq.token_ids.append(token)
            seq.computed += entry.num_tokens
            self.tree.publish(seq)
        self._planned = {}
        self._cut = self.limits.max_num_batched_tokens - self.next_budget

    def shrink(self, plan: StepPlan) -> list[Sequence]:
        """Halve the budget after a step that did not fit into memory; it grows back by one token a step.

        Returns who cannot be tried again: where no smaller step can be made, the one with the most tokens.
        """
        smaller = max(1, plan.num_tokens // 2)
        if smaller < min(self.budget, plan.num_tokens):
            self._cut = self.limits.max_num_batched_tokens - smaller
            return []
        return [max(plan.batch, key=lambda entry: entry.num_tokens).seq]

    def abort(self, plan: StepPlan) -> None:
        """The step failed: nothing was computed, no copy counts, and its sequences give back their blocks."""
        for entry in plan.batch:
            if entry.seq.state == "running":
                self._put_back(entry.seq)
        self._planned = {}
        if self._released is not plan.released:  # the runner may not have heard of them
            self._released = plan.released + self._released

    def rebuild(self, without: Sequence | None = None) -> None:
        """Start over with an empty pool and tree, when an error in the middle of something broke them."""
        live = dict.fromkeys(seq for seq in [*self.waiting, *self.running] if seq is not without)
        for seq in live:
            seq.block_table, seq.computed, seq.valid, seq.state = [], 0, 0, "waiting"
            self._released.append(seq.seq_id)
        self.running, self.waiting = [], sorted(live, key=self._key)
        self._planned, self._copies = {}, {}
        self._private = dict(Counter(seq.namespace for seq in live if seq.private))
        self.pool = BlockPool(self.pool.total, self.pool.block_size, self.changes)
        self.tree = self.tree.empty(self.pool)

    # ---- giving back

    def _stop_running(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._left += self._planned.get(seq, 0)
        self._planned.pop(seq, None)
        if seq in self._copies:
            self._release(self._copies.pop(seq)[0])
        for block in seq.block_table:
            if self.pool.writer[block] is seq:
                self.pool.writer[block] = None
            self._release(block)
            if self.pool.owner[block] is seq:
                self.pool.free(block)
        seq.block_table, seq.computed, seq.valid = [], 0, 0
        self._released.append(seq.seq_id)

    def _release(self, block: int) -> None:
        """Drop one hold; a tree block that nobody holds any more may be evicted."""
        owner = self.pool.owner[block]
        if self.pool.drop(block) and isinstance(owner, Node):
            self.tree.queue(owner)


def _leader_pending(seq: Sequence) -> bool:
    """Whether the prompt that `seq` will share is still being computed by its first choice."""
    leader = seq.leader
    return leader is not None and leader.live and leader.computed < leader.num_prompt_tokens
