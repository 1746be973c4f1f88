"""Every rule of blocks, tree and scheduler, checked by brute force; and the few that every step checks.

`violations` is used after every step in tests, after failed steps, and on demand by `LLM.check()` and `%yaie doctor`;
its cost is linear in blocks plus tree tokens plus running tokens. `suspicions` costs the same for any pool and any
batch. Imports no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .block_pool import BlockPool
from .namespaces import shown
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
        *_check_writers(scheduler),
        *_check_contents(scheduler),
        *_check_queues(scheduler),
        *_check_namespaces(scheduler),
        *_check_plan(scheduler),
        *scheduler.host.violations(scheduler.waiting),
    ]
    host = scheduler.host
    of_host: Owners = {}
    found += [*_check_free(host.pool, of_host), *_check_nodes(host.pool, host.tree, of_host)]
    held_there = {block for block, count in enumerate(host.pool.ref_count) if count}  # a tail may have no node
    if lost := set(range(host.pool.total)) - of_host.keys() - held_there:
        found.append(f"host blocks {sorted(lost)} have no owner")
    sources = {source for source, _ in scheduler._copies.values() if pool.owner[source] is None}
    missing = set(range(pool.total)) - owners.keys() - sources  # those are freed when their copy has run
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


def suspicions(scheduler: Scheduler) -> list[str]:
    """What is wrong with the totals, one running sequence and one block, in turn; between two steps only."""
    pool, limits, found = scheduler.pool, scheduler.limits, []
    if pool.num_held < 0 or pool.num_cached < 0:
        found.append(f"free {pool.num_free} + held {pool.num_held} is not within {pool.total}")
    if len(scheduler.running) > limits.max_num_seqs:
        found.append(f"{len(scheduler.running)} sequences run, at most {limits.max_num_seqs} may")
    if not scheduler.running and pool.num_held:
        found.append(f"{pool.num_held} blocks are held although nothing runs")
    if scheduler.running:
        seq = scheduler.running[scheduler.step % len(scheduler.running)]
        found += [*_check_progress(pool, seq), *_check_tail(pool, seq)]
    if pool.total:
        found += _check_block(scheduler, scheduler.step % pool.total)
    return found


def _check_block(scheduler: Scheduler, block: int) -> Iterator[str]:
    """What a block says about itself."""
    pool = scheduler.pool
    owner, writer, held = pool.owner[block], pool.writer[block], pool.ref_count[block]
    if held < 0 or (owner is None and (held or writer is not None)):
        yield f"free block {block} is held or has a writer"
    if isinstance(owner, Sequence) and (owner.state != "running" or not held):
        yield f"block {block} belongs to {owner.label}, which is {owner.state}"
    if writer is not None and (writer.state != "running" or not held):
        yield f"block {block} has {writer.label} as its writer, which is {writer.state}"


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
            yield f"the root of {shown(namespace)!r} is not empty"
        if root is not tree.root and not root.children:
            yield f"the empty root of {shown(namespace)!r} was kept"
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
    named.update(source for source, _ in scheduler._copies.values())
    if [named[block] for block in range(pool.total)] != pool.ref_count:
        yield "reference counts differ from the block tables of running sequences"
    for seq in scheduler.running:
        planned = scheduler._planned.get(seq, 0)
        if len(set(seq.block_table)) != len(seq.block_table):
            yield f"{seq.label} names a block twice"
        yield from _check_progress(pool, seq, planned)
        first_new = pool.num_blocks(max(seq.computed, seq.valid)) - 1
        for i, block in enumerate(seq.block_table):
            owner = pool.owner[block]
            if owner is seq:
                yield from _claim(owners, pool, block, seq)
                if pool.writer[block] is not seq or i < first_new:
                    yield f"{seq.label} owns block {block}, which is not its tail"
            elif not isinstance(owner, Node):
                yield f"{seq.label} names block {block} of another owner"
        if not planned:
            yield from _check_tail(pool, seq)
    for seq in scheduler.waiting:
        if seq.block_table or seq.computed or seq.valid:
            yield f"{seq.label} waits but holds blocks"


def _check_progress(pool: BlockPool, seq: Sequence, planned: int = 0) -> Iterator[str]:
    """A table is as long as what is computed, valid or planned, and the newest token is not computed yet."""
    if not 0 <= seq.computed < seq.num_tokens or seq.computed + planned > seq.num_tokens:
        yield f"{seq.label} has computed {seq.computed} of {seq.num_tokens} tokens"
    if len(seq.block_table) != pool.num_blocks(max(seq.computed + planned, seq.valid)):
        yield f"{seq.label} has {len(seq.block_table)} blocks for {seq.computed} computed tokens"


def _check_tail(pool: BlockPool, seq: Sequence) -> Iterator[str]:
    """The next token that does not begin a block goes into the sequence's own tail: nobody else may write there."""
    end = max(seq.computed, seq.valid)
    if end % pool.block_size == 0 or len(seq.block_table) != pool.num_blocks(end):
        return
    tail = seq.block_table[-1]
    owner, writer = pool.owner[tail], pool.writer[tail]
    if writer is not seq:
        yield f"{seq.label} goes on in block {tail}, whose writer is {writer.label if writer else 'nobody'}"
    if isinstance(owner, Node) and (owner.children or owner.end != end):
        yield f"{seq.label} goes on at {end} in block {tail} of node {owner.id}, which is no leaf that ends there"


def _check_writers(scheduler: Scheduler) -> Iterator[str]:
    """Who may write a block runs and names it."""
    pool = scheduler.pool
    tables = {seq: set(seq.block_table) for seq in scheduler.running}
    for block, writer in enumerate(pool.writer):
        if writer is not None and block not in tables.get(writer, ()):
            yield f"block {block} has {writer.label} as its writer, which does not hold it"


def _check_contents(scheduler: Scheduler) -> Iterator[str]:
    """The KV that a sequence reads is that of its own tokens: node by node, in its namespace and at its place."""
    pool, size = scheduler.pool, scheduler.pool.block_size
    for seq in scheduler.running:
        known = max(seq.computed, seq.valid)
        deepest: Node | None = None
        for i, block in enumerate(seq.block_table):
            node = pool.owner[block]
            if not isinstance(node, Node):
                continue
            at = i - node.start // size
            if not 0 <= at < len(node.blocks) or node.blocks[at] != block:
                yield f"{seq.label} reads block {block} of node {node.id} at the wrong place"
            deepest = node
        if deepest is None:
            continue
        if deepest.namespace != seq.namespace:
            yield f"{seq.label} reads node {deepest.id} of another namespace"
        stop = min(known, deepest.end)
        path = [token_id for node in scheduler.tree.path(deepest) for token_id in node.token_ids]
        if path[:stop] != seq.token_ids[:stop]:
            yield f"{seq.label} reads KV of other tokens than its own, up to node {deepest.id}"


def _check_queues(scheduler: Scheduler) -> Iterator[str]:
    limits = scheduler.limits
    everyone = [*scheduler.waiting, *scheduler.running]
    if len({id(seq) for seq in everyone}) != len(everyone):
        yield "a sequence is in two queues"
    for name, queue in (("waiting", scheduler.waiting), ("running", scheduler.running)):
        for seq in queue:
            if seq.state != name:
                yield f"{seq.label} is {seq.state} in the wrong queue"
    for seq in everyone:
        need, total = scheduler.fits(seq.num_prompt_tokens, seq.max_tokens)
        if need > total:
            yield f"{seq.label} needs {need} blocks of {total}"
    if len(scheduler.running) > limits.max_num_seqs:
        yield f"{len(scheduler.running)} sequences run, at most {limits.max_num_seqs} may"


def _check_namespaces(scheduler: Scheduler) -> Iterator[str]:
    """A private namespace lives as long as its sequences."""
    live = Counter(seq.namespace for seq in [*scheduler.waiting, *scheduler.running] if seq.private)
    if dict(live) != scheduler.private:
        yield f"{len(scheduler.private)} private namespaces are counted, {len(live)} are in use"


def _whole(scheduler: Scheduler) -> int:
    """The tokens of the one prompt that goes in whole, where prompts are not cut, beside nothing but decodes."""
    chunks = [(seq, count) for seq, count in scheduler._planned.items() if count > 1]
    if scheduler.limits.chunked_prefill or len(chunks) != 1:
        return 0
    seq, count = chunks[0]
    return count if seq.computed + count == seq.num_tokens else 0


def _check_plan(scheduler: Scheduler) -> Iterator[str]:
    """A plan in flight: within its budget, and over blocks that stay where they are until it has run."""
    pool, planned = scheduler.pool, scheduler._planned
    total = sum(planned.values())
    if total - _whole(scheduler) > scheduler.budget:
        yield f"{total} tokens are planned, at most {scheduler.budget} may be"
    for seq, count in planned.items():
        if seq.state != "running" or count < 1:
            yield f"{seq.label} is planned for {count} tokens, and it is {seq.state}"
            continue
        first = max(seq.computed, seq.valid) // pool.block_size
        last = pool.num_blocks(seq.computed + count)
        foreign = [block for block in seq.block_table[first:last] if pool.writer[block] is not seq]
        if foreign and seq.computed + count > seq.valid:
            yield f"{seq.label} is about to write blocks {foreign} of others"
    sources = {source for source, _ in scheduler._copies.values()}
    targets = [target for _, target in scheduler._copies.values()]
    if len(set(targets)) != len(targets) or sources & set(targets):
        yield "the copies of a step disturb each other"
    for seq, (source, target) in scheduler._copies.items():
        if not pool.ref_count[source] or pool.writer[target] is not seq:
            yield f"the copy from block {source} to {target} for {seq.label} is not safe"
