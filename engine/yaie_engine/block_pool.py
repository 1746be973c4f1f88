"""The pool of KV blocks: who owns each block, who may write it, and how many running block tables name it.

Every operation is O(1). The paging idea is vLLM's (Kwon et al., "Efficient Memory Management for Large Language Model
Serving with PagedAttention", SOSP 2023). Imports no torch: a block is a number here, its memory lives in the runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .changes import Changes

if TYPE_CHECKING:
    from .radix_tree import Node
    from .sequence import Sequence


class BlockPool:
    """`total` blocks of `block_size` tokens, each free, held (named by a running table) or cached (in the tree only).

    Two rules carry everything: a block has one owner (a tree node or a running sequence, None when free), and only its
    `writer` appends to it. `moves` counts how often a block was taken or given back. Mutated on the engine thread only.
    """

    __slots__ = ("_free", "_held", "block_size", "changes", "moves", "owner", "ref_count", "total", "writer")

    def __init__(self, total: int, block_size: int, changes: Changes | None = None) -> None:
        self.total = total
        self.block_size = block_size
        self.changes = changes if changes is not None else Changes()
        self.ref_count = [0] * total
        self.owner: list[Node | Sequence | None] = [None] * total
        self.writer: list[Sequence | None] = [None] * total
        self._free = list(range(total - 1, -1, -1))
        self._held = self.moves = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_held(self) -> int:
        return self._held

    @property
    def num_cached(self) -> int:
        return self.total - self._held - len(self._free)

    @property
    def num_available(self) -> int:
        """Free plus cached: exactly what eviction can make free."""
        return self.total - self._held

    @property
    def free_blocks(self) -> list[int]:
        return list(self._free)

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens touch."""
        return -(-num_tokens // self.block_size)

    def upcoming(self, count: int) -> list[int]:
        """The blocks that the next `count` allocations will give, as long as none is freed."""
        return self._free[: -count - 1 : -1]

    def allocate(self, owner: Sequence) -> int:
        """Take a free block for `owner`, which holds it and is its writer."""
        self.moves += 1
        block = self._free.pop()
        self.owner[block] = self.writer[block] = owner
        self.hold(block)
        self.changes.allocated.append(block)
        return block

    def free(self, block: int, *, evicted: bool = False) -> None:
        """Give back a block that nobody holds."""
        self.moves += 1
        self.owner[block] = self.writer[block] = None
        self._free.append(block)
        (self.changes.evicted if evicted else self.changes.freed).append(block)

    def hold(self, block: int) -> None:
        """One more running table (or planned copy) names the block: it cannot be evicted."""
        if self.ref_count[block] == 0:
            self._held += 1
        self.ref_count[block] += 1

    def drop(self, block: int) -> bool:
        """One table fewer names the block. True when it was the last one."""
        self.ref_count[block] -= 1
        if self.ref_count[block]:
            return False
        self._held -= 1
        return True
