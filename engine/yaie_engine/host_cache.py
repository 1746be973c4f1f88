"""Host blocks: a second pool and tree behind the device's, for what eviction and preemption take away. No torch.

What eviction under pressure takes from the device's tree is copied into host blocks first, its whole path where the
host does not have it; a match that goes on in the host's tree is copied back at admission. Both trees are of the same
kind and compare tokens, and the host's evicts by its own LRU: caches in levels over one radix tree are SGLang's
(HiCache). With preemption by swapping (vLLM's term) the KV of a preempted sequence is held here until it runs again.

Blocks are copied at once, between two steps, on the stream on which steps run: a host block that the tree names always
has its content, and a step that fails has nothing to undo here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .block_pool import BlockPool
from .changes import Changes
from .graft import graft
from .radix_tree import Node, RadixTree
from .sequence import Sequence

if TYPE_CHECKING:
    from .scheduler import Scheduler

Move = Callable[[list[tuple[int, int]]], None]
"""Copies blocks, (source, destination) each, in every layer."""


def _nothing(pairs: list[tuple[int, int]]) -> None:
    """Moves no block where there is none."""


@dataclass(frozen=True, slots=True)
class HostCounts:
    """free + held + cached == total. `swapped` sequences were held here so far, for `unswapped` there was no room."""

    total: int
    free: int
    held: int
    cached: int
    swapped: int
    unswapped: int


class HostCache:
    """`total` host blocks, none by default. Engine thread only.

    `swaps`: preempted sequences are held here. `num_swapped` counts those that were, `num_unswapped` those for which
    blocks were lacking, so that what the device has lost of them by then is computed again.
    """

    def __init__(
        self, total: int, block_size: int, swaps: bool = False, out: Move = _nothing, into: Move = _nothing
    ) -> None:
        """`out` copies device blocks to host blocks, `into` the other way."""
        self.swaps, self._out, self._into = swaps, out, into
        self.num_swapped = self.num_unswapped = 0
        self._held: dict[Sequence, list[int]] = {}
        self.pool = BlockPool(total, block_size)
        self.tree = RadixTree(self.pool)

    def serve(self, scheduler: Scheduler) -> None:
        """Take what this scheduler's tree evicts."""
        if self.pool.total:
            scheduler.tree.spill = partial(self.spill, scheduler)

    # ---- out

    def spill(self, scheduler: Scheduler, node: Node) -> None:
        """Keep the path to a leaf of the device's tree that is about to be cut; not what a single request may see."""
        if node.namespace not in scheduler.private:
            tokens = [token for part in scheduler.tree.path(node) for token in part.token_ids]
            self._keep(scheduler, tokens, scheduler.tree.blocks_to(node), node.namespace)

    def swap_out(self, scheduler: Scheduler, seq: Sequence) -> None:
        """Hold the KV of a running sequence that is about to be preempted.

        All of it has to be there by now. What may read no cache could not come back that way.
        """
        if not self.swaps or not seq.read_cache or not seq.computed:
            return
        tokens = seq.token_ids[: seq.computed]
        self._keep(scheduler, tokens, seq.block_table, seq.namespace, least=1)
        node = self.tree.match(tokens, seq.namespace)
        if node.end < len(tokens):
            self.num_unswapped += 1
            return
        blocks = self.tree.blocks_to(node)
        for block in blocks:
            self.pool.hold(block)
        self._held[seq] = blocks
        self.num_swapped += 1
        seq.swapped = True

    def _keep(
        self, scheduler: Scheduler, tokens: list[int], table: list[int], namespace: str, least: int | None = None
    ) -> None:
        graft(self.tree, tokens, partial(self._write_out, scheduler.changes, table), namespace, least)
        self.pool.changes = Changes()  # of host blocks nothing is recorded but the swaps

    def _write_out(self, changes: Changes, table: list[int], blocks: list[int], start: int, stop: int) -> None:
        first = start // self.pool.block_size
        pairs = list(zip(table[first : first + len(blocks)], blocks, strict=True))
        self._out(pairs)
        changes.swapped += [(source, ~target) for source, target in pairs]

    # ---- back in

    def restore(self, scheduler: Scheduler, seq: Sequence, kept: int) -> bool:
        """Bring what the host has of a waiting sequence into the device's tree, if it can be admitted then.

        `kept` blocks are to stay free or cached unless nobody runs.

        False: it was swapped out and had better wait for room than be computed again.
        """
        if not self.pool.total or not seq.read_cache:
            return True
        device, pool, size = scheduler.tree, scheduler.pool, self.pool.block_size
        least = 1 if seq.swapped else size
        at, known = device.find(seq.token_ids, seq.namespace)
        found = self.tree.find(seq.token_ids, seq.namespace)[1]
        if found - known < least:
            return True
        computed = min(found, seq.num_tokens - 1)
        count = scheduler.chunk(seq.num_tokens - computed)
        if not count:
            return True
        path = [] if at is None else [block for part in device.path(at) for block in part.blocks]
        held = sum(pool.ref_count[block] > 0 for block in path[: known // size])
        need = pool.num_blocks(max(computed + count, found)) + 1 - held  # one more for a copy of the last
        if scheduler.running and need + kept > pool.num_available:
            return not seq.swapped or scheduler.policy.displaces
        self._bring(scheduler, seq, least)
        return True

    def _bring(self, scheduler: Scheduler, seq: Sequence, least: int) -> None:
        node = self.tree.match(seq.token_ids, seq.namespace)
        table = self.tree.blocks_to(node)
        for block in table:  # what is evicted for its sake on the device comes here, and must not take its place
            self.pool.hold(block)
        try:
            write = partial(self._write_in, scheduler.changes, table)
            count = graft(scheduler.tree, seq.token_ids[: node.end], write, seq.namespace, least)
        finally:
            self._let_go(table)
        if seq.num_cached_tokens is None:
            seq.restored_from_host += count

    def _write_in(self, changes: Changes, table: list[int], blocks: list[int], start: int, stop: int) -> None:
        first = start // self.pool.block_size
        pairs = list(zip(table[first : first + len(blocks)], blocks, strict=True))
        self._into(pairs)
        changes.swapped += [(~source, target) for source, target in pairs]

    # ---- giving back

    def release(self, seq: Sequence) -> None:
        """`seq` runs again, or has ended: its blocks are cached from now on, as long as there is room."""
        seq.swapped = False
        self._let_go(self._held.pop(seq, []))

    def drop_namespace(self, namespace: str) -> None:
        """Free what nobody can ask for any more."""
        self.tree.drop_namespace(namespace)
        self.pool.changes = Changes()

    def discard(self, token_ids: list[int], namespace: str) -> None:
        """Free the end of a path whose KV may be damaged."""
        self.tree.discard(token_ids, namespace)
        self.pool.changes = Changes()

    def reset(self, scheduler: Scheduler) -> int:
        """Free all that nobody holds, here and on the device; the number of device blocks that became free."""
        self.tree.clear()
        self.pool.changes = Changes()
        return scheduler.tree.clear()

    def rebuild(self) -> None:
        """Forget everything."""
        for seq in self._held:
            seq.swapped = False
        self._held = {}
        self.pool = BlockPool(self.pool.total, self.pool.block_size)
        self.tree = self.tree.empty(self.pool)

    def _let_go(self, blocks: list[int]) -> None:
        for block in blocks:
            self.tree.let_go(block)
        self.pool.changes = Changes()

    # ---- reading

    @property
    def counts(self) -> HostCounts | None:
        """A view of the blocks, where there are any; any thread."""
        pool = self.pool
        if not pool.total:
            return None
        held, free = pool.num_held, pool.num_free
        return HostCounts(pool.total, free, held, pool.total - held - free, self.num_swapped, self.num_unswapped)

    # ---- rules

    def violations(self, waiting: list[Sequence]) -> Iterator[str]:
        """What is wrong with swapped sequences and their blocks, in words."""
        named = Counter(block for blocks in self._held.values() for block in blocks)
        if [named[block] for block in range(self.pool.total)] != self.pool.ref_count:
            yield "reference counts of host blocks differ from what swapped sequences hold"
        those = set(waiting)
        for seq in self._held:
            if not seq.swapped or seq not in those:
                yield f"host blocks are held for {seq.label}, which does not wait for them"
        for seq in waiting:
            if seq.swapped and seq not in self._held:
                yield f"{seq.label} is swapped out and holds no host block"
