"""Every rule of blocks, tree and scheduler, checked by brute force. Imports no torch.

Used after every step in tests and on demand by `LLM.check()` and `%yaie doctor`. The cost is linear in blocks plus tree
tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .block_pool import BlockPool
from .radix_tree import Node, RadixTree
from .scheduler import Scheduler
from .sequence import Sequence

Owner = Node | Sequence | None
Owners = dict[int, Owner]


def violations(scheduler: Scheduler) -> list[str]:
    """What is wrong, in words; empty when everything holds."""
    pool, tree = scheduler.pool, scheduler.tree
    owners: Owners = {}
    found = [
        *_check_free(pool, owners),
        *_check_nodes(pool, tree, owners),
        *_check_sequences(scheduler, owners),
        *_check_queues(scheduler),
    ]
    missing = set(range(pool.total)) - owners.keys()
    if missing:
        found.append(f"blocks {sorted(missing)} have no owner")
    cached = sum(isinstance(owner, Node) and not pool.ref_count[block] for block, owner in owners.items())
    held = sum(count > 0 for count in pool.ref_count)
    if held != pool.num_held or cached != pool.num_cached or pool.num_free + held + cached != pool.total:
        found.append(
            f"free {pool.num_free} + held {held} + cached {cached} is not {pool.total} (held count {pool.num_held})"
        )
    if scheduler.idle and held:
        found.append(f"{held} blocks are held although nothing runs")
    return found


def _claim(owners: Owners, pool: BlockPool, block: int, owner: Node | Sequence | None) -> Iterator[str]:
    if block in owners:
        yield f"block {block} has two owners"
    owners[block] = owner
    if pool.owner[block] is not owner:
        yield f"block {block} is filed under another owner"


def _check_free(pool: BlockPool, owners: Owners) -> Iterator[str]:
    for block in pool.free_blocks:
        yield from _claim(owners, pool, block, None)
        if pool.ref_count[block] or pool.writer[block] is not None:
            yield f"free block {block} is held or has a writer"


def _check_nodes(pool: BlockPool, tree: RadixTree, owners: Owners) -> Iterator[str]:
    size = pool.block_size
    for namespace, root in tree.roots.items():
        if root.token_ids or root.blocks or root.start or root.parent is not None:
            yield f"the root of {namespace!r} is not empty"
        if root is not tree.root and not root.children:
            yield f"the empty root of {namespace!r} was kept"
    for node in tree.nodes():
        for token_id, child in node.children.items():
            if (
                child.parent is not node
                or child.start != node.end
                or not child.token_ids
                or child.token_ids[0] != token_id
            ):
                yield f"node {child.id} does not continue node {node.id}"
            if child.namespace != node.namespace:
                yield f"node {child.id} left its namespace"
        if node.parent is None:
            continue
        last = node.end // size if node.children else pool.num_blocks(node.end)
        if len(node.blocks) != max(0, last - node.start // size):
            yield f"node {node.id} [{node.start}, {node.end}) owns {len(node.blocks)} blocks"
        for block in node.blocks:
            yield from _claim(owners, pool, block, node)
            if pool.writer[block] is not None and not pool.ref_count[block]:
                yield f"block {block} has a writer although nobody holds it"
        if not node.children and node.blocks and not pool.ref_count[node.blocks[-1]] and not node.queued:
            yield f"leaf {node.id} could be evicted but is not queued"


def _check_sequences(scheduler: Scheduler, owners: Owners) -> Iterator[str]:
    pool = scheduler.pool
    named = Counter(block for seq in scheduler.running for block in seq.block_table)
    if [named[block] for block in range(pool.total)] != pool.ref_count:
        yield "reference counts differ from the block tables of running sequences"
    for seq in scheduler.running:
        if len(set(seq.block_table)) != len(seq.block_table):
            yield f"{seq.label} names a block twice"
        if not 0 <= seq.computed < seq.num_tokens:
            yield f"{seq.label} has computed {seq.computed} of {seq.num_tokens} tokens"
        if len(seq.block_table) != pool.num_blocks(max(seq.computed, seq.valid)):
            yield f"{seq.label} has {len(seq.block_table)} blocks for {seq.computed} computed tokens"
        for i, block in enumerate(seq.block_table):
            owner = pool.owner[block]
            if owner is seq:
                yield from _claim(owners, pool, block, seq)
                if pool.writer[block] is not seq or i != len(seq.block_table) - 1:
                    yield f"{seq.label} owns block {block}, which is not its tail"
            elif not isinstance(owner, Node):
                yield f"{seq.label} names block {block} of another owner"
    for seq in scheduler.waiting:
        if seq.block_table or seq.computed:
            yield f"{seq.label} waits but holds blocks"


def _check_queues(scheduler: Scheduler) -> Iterator[str]:
    limits = scheduler.limits
    everyone = [*scheduler.waiting, *scheduler.running]
    if len({id(seq) for seq in everyone}) != len(everyone):
        yield "a sequence is in two queues"
    for seq in everyone:
        if seq.state != ("waiting" if seq in scheduler.waiting else "running"):
            yield f"{seq.label} is {seq.state} in the wrong queue"
        need, total = scheduler.fits(seq.num_prompt_tokens, seq.max_tokens)
        if need > total:
            yield f"{seq.label} needs {need} blocks of {total}"
    if len(scheduler.running) > limits.max_num_seqs:
        yield f"{len(scheduler.running)} sequences run, at most {limits.max_num_seqs} may"
