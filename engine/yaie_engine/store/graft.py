"""A stored prefix joins the tree, as if a request had computed it and left. Engine thread, between two steps."""

from __future__ import annotations

from collections.abc import Callable

from yaie_engine.radix_tree import Node
from yaie_engine.scheduler import Scheduler
from yaie_engine.sequence import Sequence

Write = Callable[[list[int], int, int], None]
"""Writes tokens of the prefix, from a start where a block begins to a stop, into these blocks."""


def graft(scheduler: Scheduler, token_ids: list[int], write: Write) -> int:
    """Put as much of the prefix into the tree as fits; how many tokens the tree did not have before.

    It takes free blocks and such as nobody holds, like a request that is admitted, and ends with all of them cached:
    nobody runs here. Blocks that the tree has are shared; where they end inside of one, that block is written anew,
    since every token is at hand. Nothing is published when `write` raises, and no block is lost.
    """
    tree, pool = scheduler.tree, scheduler.pool
    size = pool.block_size
    known = tree.find(token_ids)[1]
    if len(token_ids) - known < min(size, len(token_ids)):  # less than a block more is sooner computed
        return 0
    seq = Sequence(-1, "prefix store", token_ids, len(token_ids), 0)
    node = tree.match(token_ids)
    shared = tree.blocks_to(node)[: node.end // size]
    for block in shared:
        pool.hold(block)
    seq.block_table = list(shared)
    try:
        stop = min(len(token_ids), (len(shared) + pool.num_available) * size)
        added = stop - node.end  # publishing may make the node itself longer
        if added < min(size, len(token_ids)):
            return 0
        need = pool.num_blocks(stop) - len(shared)
        tree.evict(need)
        fresh = [pool.allocate(seq) for _ in range(need)]
        seq.block_table += fresh
        write(fresh, len(shared) * size, stop)
        seq.computed = seq.valid = stop
        tree.publish(seq)
        return added
    finally:
        _leave(scheduler, seq)


def _leave(scheduler: Scheduler, seq: Sequence) -> None:
    pool = scheduler.pool
    for block in seq.block_table:
        if pool.writer[block] is seq:
            pool.writer[block] = None
        owner = pool.owner[block]
        if pool.drop(block) and isinstance(owner, Node):
            scheduler.tree.queue(owner)
        if owner is seq:
            pool.free(block)
