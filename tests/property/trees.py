"""Radix trees without a scheduler: as if requests had computed prompts and left, or run on."""

from __future__ import annotations

from yaie_engine.block_pool import BlockPool
from yaie_engine.graft import graft
from yaie_engine.radix_tree import Node, RadixTree
from yaie_engine.sequence import Sequence

SIZE = 4


def tree_of(*prompts: list[int], total: int = 64) -> RadixTree:
    tree = RadixTree(BlockPool(total, SIZE))
    for prompt in prompts:
        put(tree, prompt)
    return tree


def put(tree: RadixTree, prompt: list[int], namespace: str = "") -> None:
    """As if a request had computed it and left."""
    graft(tree, list(prompt), lambda *_: None, namespace, least=1)


def runs(tree: RadixTree, prompt: list[int], computed: int | None = None, namespace: str = "") -> Sequence:
    """A sequence that has computed so much by itself, and has not published it."""
    seq = Sequence(7, "r7", list(prompt), len(prompt), 1, namespace=namespace, state="running")
    seq.computed = len(prompt) if computed is None else computed
    seq.block_table = [tree.pool.allocate(seq) for _ in range(tree.pool.num_blocks(seq.computed))]
    return seq


def goes_on(tree: RadixTree, seq: Sequence, token: int) -> None:
    """One token more, computed and published."""
    seq.token_ids.append(token)
    seq.computed += 1
    if tree.pool.num_blocks(seq.computed) > len(seq.block_table):
        seq.block_table.append(tree.pool.allocate(seq))
    tree.publish(seq)


def leaves(tree: RadixTree, seq: Sequence) -> None:
    for block in seq.block_table:
        tree.pool.writer[block] = None
        owner = tree.pool.owner[block]
        if tree.pool.drop(block) and isinstance(owner, Node):
            tree.queue(owner)
        if owner is seq:
            tree.pool.free(block)


def contents(tree: RadixTree, namespace: str = "") -> set[tuple[int, ...]]:
    """Every path from the root to a leaf."""
    nodes = [node for node in tree.nodes() if node.namespace == namespace and node.parent and not node.children]
    return {tuple(token for part in tree.path(node) for token in part.token_ids) for node in nodes}


A, B, C = [list(range(start, start + 8)) for start in (0, 100, 200)]
