"""Whether taking the places of running sequences makes enough room for one that waits. Imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .radix_tree import RadixTree
from .sequence import Sequence


def makes_room(tree: RadixTree, seq: Sequence, chunk: int, victims: Iterable[Sequence], kept: int) -> bool:
    """Whether `seq` could start with `chunk` tokens and leave `kept` blocks, if the victims gave back theirs.

    On the safe side by the block of a copy. Linear in the victims' block tables and the match; changes nothing.
    """
    pool = tree.pool
    named = Counter(block for victim in victims for block in victim.block_table)
    gained = sum(pool.ref_count[block] == count for block, count in named.items())
    node, hit = tree.find(seq.token_ids, seq.namespace) if seq.read_cache else (None, 0)
    path = tree.path(node) if node is not None else []
    blocks = [block for part in path for block in part.blocks][: pool.num_blocks(hit)]
    taken = sum(pool.ref_count[block] == named[block] for block in blocks)
    fresh = pool.num_blocks(min(seq.num_tokens, hit + chunk)) - len(blocks) + 1
    return taken + fresh + kept <= pool.num_available + gained
