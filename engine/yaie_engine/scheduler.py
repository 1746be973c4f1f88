"""One schedule, no phases: every sequence has computed tokens that catch up with its tokens.

A step fills one token budget, decodes first, then prefill chunks, then newly admitted sequences. The idea of one
budget for both phases is vLLM's; the rules of blocks and tree are in `block_pool` and `radix_tree`. Imports no torch.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence as Seq

from .block_pool import BlockPool
from .changes import Changes
from .displacement import makes_room
from .errors import InvariantError
from .followers import Prefixes
from .host_cache import HostCache
from .plan import Guess, ScheduledSequence, StepPlan, decodes_first
from .policy import Policy
from .radix_tree import Node, RadixTree
from .sequence import Admission, Sequence, SequenceState
from .step_limits import Limits
from .turns import goes_on


class Scheduler:
    """Waiting and running sequences over one pool and one tree. Mutated on the engine thread only."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        limits: Limits | None = None,
        policy: Policy | None = None,
        host: HostCache | None = None,
    ) -> None:
        """`policy` is first come, first served by default, and there are no host blocks."""
        self.changes = Changes()
        self.pool = BlockPool(num_blocks, block_size, self.changes)
        self.tree = RadixTree(self.pool)
        self.host = host or HostCache(0, block_size)
        self.host.serve(self)
        self.limits = limits or Limits()
        self.watermark = max(1, num_blocks // 100) if self.limits.watermark is None else self.limits.watermark
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.step = 0
        self.policy = policy or Policy()
        self._key = self.policy.key
        self._prefixes = Prefixes(self.limits.shared_prefill)
        self._followers = self._reads = self._kept = 0
        self._order = self._cut = self._left = 0
        self.held_up = False  # until what is being read has come
        self._planned: dict[Sequence, int] = {}
        self._copies: dict[Sequence, tuple[int, int]] = {}
        self._released: list[int] = []
        self._preempted: list[str] = []
        self.private: dict[str, int] = {}

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
            self.private[seq.namespace] = self.private.get(seq.namespace, 0) + 1
        self.policy.arrived(seq)
        self._queue(seq)

    def _queue(self, seq: Sequence) -> None:
        seq.queued_step, self.held_up = self.step, False
        bisect.insort(self.waiting, seq, key=self._key)

    def finish(self, seq: Sequence, state: SequenceState) -> None:
        """End a live sequence in any state; its blocks stay cached while memory lasts."""
        if not seq.live:
            return
        self.policy.left(seq)
        self.held_up = False
        if seq.state == "waiting":
            self.waiting.remove(seq)
            self.host.release(seq)
        else:
            self._stop_running(seq)
        seq.state = state
        if seq.private:
            self.private[seq.namespace] -= 1
            if not self.private[seq.namespace]:
                del self.private[seq.namespace]
                self.tree.drop_namespace(seq.namespace)
                self.host.drop_namespace(seq.namespace)

    def preempt(self, seq: Sequence) -> None:
        """Take a running sequence's blocks; it keeps its tokens and is matched again when it is admitted again."""
        if seq not in self._copies:  # else a part of its KV is yet to be copied
            self.host.swap_out(self, seq)
        self._put_back(seq)
        self.num_preemptions += 1
        seq.num_preemptions += 1
        self._preempted.append(seq.label)

    def _put_back(self, seq: Sequence) -> None:
        self._stop_running(seq)
        seq.state = "waiting"
        self.policy.put_back(seq)
        self._queue(seq)

    @property
    def idle(self) -> bool:
        return not self.running and (self.held_up or all(seq.pending for seq in self.waiting))

    @property
    def admits(self) -> bool:
        """Whether the next step may admit somebody."""
        if not self.waiting or len(self.running) < self.limits.max_num_seqs:
            return bool(self.waiting)
        return bool(self.policy.outranked(self.waiting[0], self.running))  # the first has the highest priority

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
        self._planned, self._copies, self._reads = {}, {}, 0
        self._left = self.budget
        self.tree.step = self.step + 1
        before = self.num_preemptions
        self._plan_running()
        if self.num_preemptions == before:  # what was just preempted is not admitted in the same step
            self._admit_waiting()
        self.held_up = bool(self._reads) and not self.running
        if self._planned:
            self.step += 1
        batch = [ScheduledSequence.of(seq, seq.computed, count, seq.num_tokens) for seq, count in self._planned.items()]
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
        for seq in sorted(self.running, key=lambda s: (s.remaining > 1, -s.rank, s.admitted)):
            if seq.state != "running":
                continue
            count = self.chunk(seq.remaining)
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

    def chunk(self, remaining: int) -> int:
        """How many of a sequence's remaining tokens this step can take; 0 when its turn is later."""
        return self.limits.share(remaining, self._left, self._planned.values())

    def _victim(self) -> Sequence:
        """The last admitted of the lowest rank."""
        return min(self.running, key=lambda s: (s.rank, -s.admitted))

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
        """Admit in the policy's order, and nobody past one that does not fit.

        Behind who follows a prefix others may pass, if they leave its slot, its blocks and the next step's budget to
        it, the budget not to one that is read for. Behind one that is due and does not fit only those may who take the
        place of others.
        """
        self._followers = self._kept = 0
        if not self.admits:
            return
        self._prefixes.clear()
        for seq in self._planned:
            self._prefixes.add(seq)
        blocked, slots = False, self.limits.max_num_seqs
        for seq in self.policy.candidates(self.waiting, self.tree, self.step, self._left):
            taken = self._followers + self._reads
            has_slot = len(self.running) + taken < slots
            if not has_slot and (taken >= slots or not self.policy.displaces):
                return  # nor is anybody asked whom to follow: of a long queue that would cost more than the step
            if seq.source and not (blocked or goes_on(self, seq, self._kept, has_slot)):
                return
            if seq.pending or self._follows(seq):
                self._reads, self._kept = self._reads + (seq.reading > 0), self._kept + seq.reading
                continue
            if self._followers and self.chunk(seq.remaining) < seq.remaining:
                return
            if (not blocked and has_slot and self._admit(seq)) or self._displace(seq, has_slot):
                continue
            if not (self.policy.displaces and self.policy.due(seq)):
                return
            blocked, self._kept = True, self.pool.num_available

    def _follows(self, seq: Sequence) -> bool:
        """Whether `seq` waits for tokens that this step computes for another; what it needs is kept for it."""
        if self._left < 1 or not self._prefixes.worth_a_step(seq, self.tree, self.limits):
            return False
        self._followers += 1
        self._kept += self.pool.num_blocks(seq.num_tokens)
        return True

    def _displace(self, seq: Sequence, has_slot: bool) -> bool:
        """Take the places of running sequences of lower rank, of as few as will do; of nobody if that is not enough."""
        victims = self.policy.outranked(seq, self.running)
        if has_slot and not self.chunk(seq.remaining):  # only the budget lacks, of which decodes give little back
            victims = [victim for victim in victims if self._planned.get(victim, 0) > 1]
        stay = {each: count for each, count in self._planned.items() if each not in victims}
        chunk = self.limits.share(seq.remaining, self.budget - sum(stay.values()), stay.values())
        kept = self._kept + (self.watermark if len(victims) < len(self.running) else 0)
        if not chunk or not makes_room(self.tree, seq, chunk, victims, kept):
            return False
        for victim in victims:
            self.preempt(victim)
            if self._admit(seq):
                return True
        return False

    def _admit(self, seq: Sequence) -> bool:
        if not self.host.restore(self, seq, self._kept + self.watermark):
            return False
        while not self._try_admit(seq):
            # Alone and still too large: the match is the most recent path, so evicting leaf by leaf ends with the
            # sequence taking over the tail of its match, and no matched token is lost.
            if self.running or self._reads or self.chunk(seq.remaining) == 0 or not self.tree.evict_one():
                return False
        self.waiting.remove(seq)
        self.running.append(seq)
        self.host.release(seq)
        self._order += 1
        seq.admitted, seq.state, seq.rank, seq.source = self._order, "running", self.policy.rank(seq), None
        seq.waited += self.step - seq.queued_step
        self.policy.admitted(seq, self.step)
        self._prefixes.add(seq)
        return True

    def _try_admit(self, seq: Sequence) -> bool:
        """Hold the match, then take the blocks of the first chunk; all or nothing."""
        pool = self.pool
        node = self.tree.match(seq.token_ids, seq.namespace) if seq.read_cache else Node(-1, None, 0, [], [])
        hit = node.end
        computed = min(hit, seq.num_tokens - 1)
        count = self.chunk(seq.num_tokens - computed)
        if not count:
            return False
        blocks = self.tree.blocks_to(node)
        source = blocks[-1] if hit % pool.block_size else None
        takes_over = source is not None and not node.children and not pool.ref_count[source]
        shared = blocks if source is None or takes_over else blocks[:-1]
        for block in blocks:  # held first: what the match needs is not available any more
            pool.hold(block)
        need = pool.num_blocks(max(computed + count, hit)) - len(shared)
        if need + (self.watermark if self.running else 0) + self._kept > pool.num_available:
            for block in blocks:
                self.tree.let_go(block)
            return False
        self.tree.evict(need)
        seq.block_table, seq.computed, seq.valid = shared + [pool.allocate(seq) for _ in range(need)], computed, hit
        copy = None
        if source is not None and takes_over:
            pool.writer[source] = seq
        elif source is not None:
            copy = (source, seq.block_table[hit // pool.block_size])
            self._copies[seq] = copy  # the source stays held until the copy has run
        matched = tuple((part.id, len(part.token_ids)) for part in self.tree.path(node))
        seq.note(Admission(self.step + 1, seq.num_tokens, seq.computed, matched, tuple(shared), copy))
        self._plan(seq, count)
        return True

    # ---- after the forward

    def complete(self, plan: StepPlan, sampled: Seq[int | None]) -> None:
        """The step succeeded: advance, append the sampled tokens (in `plan.sampling` order) and publish to the tree.

        None stands for a row that gave no token: nothing of it is published, and the caller must finish its sequence.
        What ended while the step ran is passed over.
        """
        self.changes.copied += plan.copies
        for source, _ in self._copies.values():
            self.tree.let_go(source)
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
                self.policy.generated(seq)
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
        if self._released is not plan.released:  # the runner may not have heard of them
            self._released = plan.released + self._released

    def rebuild(self, without: Sequence | None = None) -> None:
        """Start over with an empty pool and tree, when an error in the middle of something broke them."""
        live = dict.fromkeys(seq for seq in [*self.waiting, *self.running] if seq is not without)
        for seq in live:
            if seq.state == "running":
                seq.queued_step = self.step
            seq.block_table, seq.computed, seq.valid, seq.state = [], 0, 0, "waiting"
            self._released.append(seq.seq_id)
        self.running, self.waiting, self.held_up = [], sorted(live, key=self._key), False
        self.policy.restarted(live)
        self._planned, self._copies = {}, {}
        self.private = dict(Counter(seq.namespace for seq in live if seq.private))
        self.pool = BlockPool(self.pool.total, self.pool.block_size, self.changes)
        self.tree = self.tree.empty(self.pool)
        self.host.rebuild()

    # ---- giving back

    def _stop_running(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._left += self._planned.pop(seq, 0)
        if seq in self._copies:
            self.tree.let_go(self._copies.pop(seq)[0])
        for block in seq.block_table:
            if self.pool.writer[block] is seq:
                self.pool.writer[block] = None
            self.tree.let_go(block)
            if self.pool.owner[block] is seq:
                self.pool.free(block)
        seq.block_table, seq.computed, seq.valid = [], 0, 0
        self._released.append(seq.seq_id)
