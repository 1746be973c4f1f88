"""A waiting sequence goes on from a kept state. Imports no torch. Engine thread only.

Before it is admitted, blocks for the tokens of that state are cached in its own namespace, so that pool, tree and
scheduler know no other kind of hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_engine.graft import graft
from yaie_engine.host_cache import HostCache
from yaie_engine.sequence import Sequence

from .kept import KeptStates

if TYPE_CHECKING:
    from yaie_engine.scheduler import Scheduler


class StateRestore(HostCache):
    """Kept states in the place of host blocks, of which there are none."""

    def __init__(self, kept: KeptStates, block_size: int) -> None:
        super().__init__(0, block_size)
        self.kept = kept

    def restore(self, scheduler: Scheduler, seq: Sequence, kept: int) -> bool:
        """Let `seq` go on from the longest state that fits, where there is room for its blocks.

        A match must be exactly what the state stands for. So nothing else of its namespace stays cached, as after a
        preemption: blocks only count here what a state occupies. False: it was preempted, and had better wait for room
        than be computed again.
        """
        tree, pool = scheduler.tree, scheduler.pool
        seq.resume, seq.restored_state = None, 0
        if seq.salt is None or not seq.read_cache:
            return True
        self.kept.settle()
        found = self.kept.longest(seq.token_ids, seq.salt)
        hit = 0 if found is None else len(found.token_ids)
        if tree.find(seq.token_ids, seq.namespace)[1] != hit:
            tree.drop_namespace(seq.namespace)
        computed = min(hit, seq.num_tokens - 1)
        count = scheduler.chunk(seq.num_tokens - computed)
        if found is None or not count:
            return True
        need = pool.num_blocks(max(hit, computed + count))
        if need + kept > pool.num_available if scheduler.running else need > pool.total:
            tree.drop_namespace(seq.namespace)
            return not seq.num_preemptions or scheduler.policy.displaces
        graft(tree, seq.token_ids[:hit], _nothing_to_write, seq.namespace, least=1)
        seq.resume = found
        if seq.num_cached_tokens is None:  # `restored` says what was read for it
            seq.restored = hit if hit == seq.restored else 0
            seq.restored_state = hit - seq.restored
        return True

    def discard(self, token_ids: list[int], namespace: str) -> None:
        """Forget what the tokens of a request that failed run through, whoever may find it."""
        for salt in {kept.salt for kept in self.kept.entries()}:
            self.kept.discard(token_ids, salt)

    def reset(self, scheduler: Scheduler) -> int:
        """Forget every state, and free the blocks that nobody holds; how many these are."""
        self.kept.settle()
        self.kept.clear()
        return super().reset(scheduler)

    def rebuild(self) -> None:
        """Forget everything."""
        super().rebuild()
        self.kept.clear()


def _nothing_to_write(blocks: list[int], start: int, stop: int) -> None:
    """The state is not in the blocks."""
