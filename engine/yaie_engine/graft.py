"""A prefix whose KV lies somewhere else joins a tree, as if a request had computed it and left. Imports no torch.

So come records of the prefix store and host blocks into the device's tree, and device blocks into the host's. Engine
thread, never while a step runs.
"""

from __future__ import annotations

from collections.abc import Callable

from .radix_tree import RadixTree
from .sequence import Sequence

Write = Callable[[list[int], int, int], None]
"""Writes tokens of the prefix, from a start where a block begins to a stop, into these blocks."""


def graft(tree: RadixTree, token_ids: list[int], write: Write, namespace: str = "", least: int | None = None) -> int:
    """Put as much of the prefix into the tree as fits; how many tokens the tree did not have before.

    It takes free blocks and such as nobody holds, like a request that is admitted, and ends with all of them cached:
    nobody runs here. Blocks that the tree has are shared; where they end inside of one, that block is written anew,
    since every token is at hand. Fewer tokens more than `least`, by default those of a block, are not worth it.
    Nothing is published when `write` raises, and no block is lost.
    """
    pool = tree.pool
    size = pool.block_size
    least = max(1, min(size if least is None else least, len(token_ids)))
    if len(token_ids) - tree.find(token_ids, namespace)[1] < least:
        return 0
    seq = Sequence(-1, "graft", token_ids, len(token_ids), 0, namespace=namespace)
    node = tree.match(token_ids, namespace)
    shared = tree.blocks_to(node)[: node.end // size]
    for block in shared:
        pool.hold(block)
    seq.block_table = list(shared)
    try:
        stop = min(len(token_ids), (len(shared) + pool.num_available) * size)
        if stop - node.end < least:
            return 0
        known = node.end
        need = pool.num_blocks(stop) - len(shared)
        tree.evict(need)
        fresh = [pool.allocate(seq) for _ in range(need)]
        seq.block_table += fresh
        write(fresh, len(shared) * size, stop)
        seq.computed = seq.valid = stop
        tree.publish(seq)
        return stop - known
    finally:
        _leave(tree, seq)


def _leave(tree: RadixTree, seq: Sequence) -> None:
    pool = tree.pool
    for block in seq.block_table:
        if pool.writer[block] is seq:
            pool.writer[block] = None
        tree.let_go(block)
        if pool.owner[block] is seq:
            pool.free(block)
