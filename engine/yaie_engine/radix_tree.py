"""The radix tree of token sequences whose KV is in the pool: match, publish, split, evict.

Prefix reuse by radix tree is SGLang's RadixAttention (Zheng et al., "SGLang: Efficient Execution of Structured
Language Model Programs", 2024). Here a node ends at any token, not only at block boundaries: splitting moves no memory,
and a match that ends inside a block costs one block copy at most. Imports no torch.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .block_pool import BlockPool
from .fault_points import fault_point
from .sequence import Sequence

_CHUNK = 512


@dataclass(eq=False, slots=True)
class Node:
    """A run of tokens from position `start`; `blocks` are those of logical blocks `start // block_size` and on.

    The node owns the blocks that its range touches, its first included: where it starts inside a block, that block
    also holds the slots of its ancestors. A node with children owns no block for a tail that ends inside a block: every
    child holds those slots.
    """

    id: int
    parent: Node | None
    start: int
    token_ids: list[int]
    blocks: list[int]
    namespace: str = ""
    used: int = 0
    used_step: int = 0
    children: dict[int, Node] = field(default_factory=dict)
    queued: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


class RadixTree:
    """One tree over one pool, with a root per namespace (a cache salt, or one request when nothing may be shared).

    Token ids are compared, never only their hash. `spill` gets each leaf before pressure evicts it or a part of it.
    Mutated on the engine thread only.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.block_size = pool.block_size
        self.step = 0
        self._ids = itertools.count(1)
        self._order = itertools.count()
        self._clock = 0
        self._lru: list[tuple[int, int, Node]] = []
        self._num_dead = 0
        self.spill: Callable[[Node], None] | None = None
        self.root = Node(0, None, 0, [], [])
        self.roots: dict[str, Node] = {"": self.root}

    def empty(self, pool: BlockPool) -> RadixTree:
        """A tree without nodes over a new pool; ids go on, so that none comes twice."""
        tree = RadixTree(pool)
        if any(root.children for root in self.roots.values()):
            pool.changes.wipe()
        tree._ids, tree._clock, tree.step, tree.spill = self._ids, self._clock, self.step, self.spill
        return tree

    # ---- reading

    def match(self, token_ids: list[int], namespace: str = "") -> Node:
        """The node at which the longest known prefix ends; it is split there, and its whole path becomes recent."""
        self._clock += 1
        node = self.roots.get(namespace)
        if node is None:
            return Node(-1, None, 0, [], [], namespace)
        position = 0
        while position < len(token_ids) and (child := node.children.get(token_ids[position])):
            position += _common(child.token_ids, 0, token_ids, position, len(token_ids))
            node = self._split(child, position) if position < child.end else child
            self._touch(node)
            if node is not child:
                break
        return node

    def find(self, token_ids: list[int], namespace: str = "") -> tuple[Node | None, int]:
        """What `match` would find, without a change: the deepest node that it touches, and the length in tokens."""
        node, position = self.roots.get(namespace), 0
        while node is not None and position == node.end and position < len(token_ids):
            child = node.children.get(token_ids[position])
            if child is None:
                break
            node = child
            position += _common(node.token_ids, 0, token_ids, position, len(token_ids))
        return node, position

    def path(self, node: Node) -> list[Node]:
        """The nodes from below the root to `node`."""
        nodes: list[Node] = []
        at: Node | None = node
        while at is not None and at.parent is not None:
            nodes.append(at)
            at = at.parent
        return nodes[::-1]

    def blocks_to(self, node: Node) -> list[int]:
        """The block of every logical block from position 0 to the end of `node`; an inner tail comes from any child."""
        table = [block for part in self.path(node) for block in part.blocks]
        below = node
        while len(table) * self.block_size < node.end:
            below = next(iter(below.children.values()))
            table += below.blocks[:1]
        return table

    def nodes(self) -> Iterator[Node]:
        """Every node, roots first, parents before children."""
        stack = list(self.roots.values())[::-1]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    # ---- writing

    def publish(self, seq: Sequence) -> None:
        """Put the computed tokens of `seq` into the tree.

        Where the tree has them already its blocks win: the sequence is re-pointed and its duplicates are freed. It
        holds the end of what it adds: whoever lets go of that last queues it for eviction.
        """
        fault_point("publish", seq)
        self._clock += 1
        if self._goes_on(seq):
            return
        known, node = self._known(seq)
        position = min(node.end, known * self.block_size, seq.computed)
        node, position, found = self._follow(seq, known, node, position)
        self._repoint(seq, known, position, found)
        self._touch(node)
        if position < seq.computed:
            self._grow(seq, node, position)

    def _goes_on(self, seq: Sequence) -> bool:
        """What nearly every decode is, and all that is below comes to then: a token more in a leaf's own tail.

        A node that has children owns no tail, so that it is none of those.
        """
        at = seq.computed - 1
        leaf = self.pool.owner[seq.block_table[at // self.block_size]]
        if not isinstance(leaf, Node) or leaf.end != at:
            return False
        self.pool.changes.extended.append(leaf.id)
        self.pool.changes.touch(leaf, len(leaf.token_ids), len(leaf.blocks))
        leaf.token_ids.append(seq.token_ids[at])
        self._touch(leaf)
        return True

    def _known(self, seq: Sequence) -> tuple[int, Node]:
        """How many leading blocks of the table are the tree's, and the node that owns the last of them."""
        for count in range(self.pool.num_blocks(seq.computed), 0, -1):
            owner = self.pool.owner[seq.block_table[count - 1]]
            if isinstance(owner, Node):
                return count, owner
        return 0, self._root(seq.namespace)

    def _follow(self, seq: Sequence, known: int, node: Node, position: int) -> tuple[Node, int, dict[int, int]]:
        """Walk down as far as the tree agrees; `found` maps logical blocks to the tree's blocks on the way."""
        size, tokens, computed = self.block_size, seq.token_ids, seq.computed
        found: dict[int, int] = {}
        while position < computed:
            if position == node.end:
                child = node.children.get(tokens[position])
                if child is None:
                    break
                node = child
            position += _common(node.token_ids, position - node.start, tokens, position, computed)
            first = node.start // size
            for i in range(max(known, first), position // size):
                found[i] = node.blocks[i - first]
            self._touch(node)
            if position < node.end:
                break
        return node, position, found

    def _repoint(self, seq: Sequence, known: int, position: int, found: dict[int, int]) -> None:
        for i in range(known, position // self.block_size):
            mine, theirs = seq.block_table[i], found[i]
            if mine != theirs:
                self.pool.hold(theirs)
                self.pool.drop(mine)
                self.pool.free(mine)
                seq.block_table[i] = theirs

    def _grow(self, seq: Sequence, node: Node, position: int) -> None:
        """Add tokens[position:computed] below or at the end of `node` and give the tree their blocks."""
        if position < node.end:
            node = self._split(node, position)
        at = position // self.block_size
        tail_is_mine = position % self.block_size == 0 or self.pool.owner[seq.block_table[at]] is node
        if node.parent is None or node.children or not tail_is_mine:
            node = self._add_child(node, position)
            first = at
            self.pool.changes.added.append(node.id)
        else:
            first = self.pool.num_blocks(position)
            self.pool.changes.extended.append(node.id)
        self.pool.changes.touch(node, len(node.token_ids), len(node.blocks))
        node.token_ids += seq.token_ids[position : seq.computed]
        if node.parent is not None:
            node.parent.children[node.token_ids[0]] = node
        for block in seq.block_table[first : self.pool.num_blocks(seq.computed)]:
            node.blocks.append(block)
            self.pool.owner[block] = node
        self._touch(node)

    def _add_child(self, node: Node, position: int) -> Node:
        """A new leaf below `node`. A first child holds the slots of its parent's tail, so that block changes hands."""
        if not node.children and position % self.block_size:
            tail = node.blocks.pop()
            self.pool.changes.touch(node, len(node.token_ids), len(node.blocks))
            if self.pool.ref_count[tail]:
                self.pool.owner[tail] = self.pool.writer[tail]
            else:
                self.pool.free(tail)
        return Node(next(self._ids), node, position, [], [], node.namespace)

    def _split(self, node: Node, position: int) -> Node:
        """Cut `node` at `position`; the new upper part keeps the full blocks, the lower one the rest."""
        at, keep = position - node.start, position // self.block_size - node.start // self.block_size
        upper = Node(next(self._ids), node.parent, node.start, node.token_ids[:at], node.blocks[:keep], node.namespace)
        upper.used, upper.used_step = node.used, node.used_step
        upper.children[node.token_ids[at]] = node
        if node.parent is not None:
            node.parent.children[node.token_ids[0]] = upper
        node.parent, node.start, node.token_ids, node.blocks = upper, position, node.token_ids[at:], node.blocks[keep:]
        for block in upper.blocks:
            self.pool.owner[block] = upper
        self.pool.changes.split.append(upper.id)
        for part in (upper, node):
            self.pool.changes.touch(part, 0, 0)
        return upper

    def _root(self, namespace: str) -> Node:
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Node(next(self._ids), None, 0, [], [], namespace)
        return root

    def _touch(self, node: Node) -> None:
        node.used, node.used_step = self._clock, self.step
        self.pool.changes.used[node.id] = self.step

    # ---- eviction: leaves, least recently used first

    def queue(self, node: Node) -> None:
        """Note that `node` may be evictable. Entries are lazy: they are checked when they come up."""
        if not node.queued and node.parent is not None and not node.children:
            node.queued = True
            heapq.heappush(self._lru, (node.used, next(self._order), node))
            if 2 * self._num_dead > len(self._lru) > 64:
                self._lru = [entry for entry in self._lru if entry[2].parent is not None]
                heapq.heapify(self._lru)
                self._num_dead = 0

    def let_go(self, block: int) -> None:
        """Drop one hold. A leaf's block may be evicted now; one that its node gave up to a child meanwhile is free."""
        if self.pool.drop(block):
            if isinstance(owner := self.pool.owner[block], Node):
                self.queue(owner)
            elif owner is None:
                self.pool.free(block)

    def evict(self, wanted: int) -> None:
        """Make `wanted` blocks free; the caller has checked that as many are available."""
        while self.pool.num_free < wanted:
            if not self.evict_one():
                raise RuntimeError(
                    f"{self.pool.num_available} blocks are available, but only {self.pool.num_free} can be freed"
                )

    def evict_one(self, *, pressure: bool = True) -> bool:
        """Cut the least recently used leaf back to its last held block. False: nothing is left to evict.

        Without `pressure` (a reset) the blocks are recorded as freed, not as evicted.
        """
        while self._lru:
            used, _, node = heapq.heappop(self._lru)
            node.queued = False
            self._num_dead -= node.parent is None
            if node.parent is None or node.children or self.pool.ref_count[node.blocks[-1]]:
                continue  # removed, inner or held: queued again when that ends
            if used != node.used:
                self.queue(node)
                continue
            if pressure and self.spill is not None:
                self.spill(node)
            self._cut(node, evicted=pressure)
            return True
        return False

    def _cut(self, node: Node, *, evicted: bool = False) -> None:
        keep = len(node.blocks)
        while keep and not self.pool.ref_count[node.blocks[keep - 1]]:
            keep -= 1
        gone = node.blocks[keep:]
        if keep:
            del node.blocks[keep:]
            del node.token_ids[(node.start // self.block_size + keep) * self.block_size - node.start :]
            self.pool.changes.touch(node, len(node.token_ids), keep)
        else:
            gone = self._remove(node, gone)
        for block in gone:
            self.pool.free(block, evicted=evicted)

    def _remove(self, node: Node, gone: list[int]) -> list[int]:
        """Take a leaf out; what its parent needs of `gone` for its own tail stays."""
        parent = node.parent
        if parent is None:
            return gone
        del parent.children[node.token_ids[0]]
        node.parent = None
        self._num_dead += node.queued
        self.pool.changes.removed.append(node.id)
        if parent.children:
            return gone
        if parent.parent is None:
            if parent is not self.root:
                self.roots.pop(parent.namespace, None)
            return gone
        parent.used, parent.used_step = max((parent.used, parent.used_step), (node.used, node.used_step))
        self.pool.changes.touch(parent, len(parent.token_ids), len(parent.blocks))
        if node.start % self.block_size:
            parent.blocks.append(gone[0])
            self.pool.owner[gone[0]] = parent
            gone = gone[1:]
        self.queue(parent)
        return gone

    def drop_namespace(self, namespace: str) -> None:
        """Free every node of a namespace that nobody holds any more."""
        root = self.roots.get(namespace)
        leaves = [] if root is None else _leaves(root)
        while leaves:
            node = leaves.pop()
            parent = node.parent
            self._cut(node)  # which takes nothing of what is held
            if parent is not None and not parent.children:
                leaves.append(parent)

    def discard(self, token_ids: list[int], namespace: str) -> None:
        """Free the end of a path as far as nobody holds it and nothing branches off: its KV may be damaged."""
        node = self.match(token_ids, namespace)
        while (parent := node.parent) is not None and not node.children:
            self._cut(node)  # where something is held it stays, so that its parent has a child
            node = parent

    def clear(self) -> int:
        """Free all that nobody holds; the number of blocks that became free."""
        before = self.pool.num_free
        while self.evict_one(pressure=False):
            pass
        return self.pool.num_free - before


def _leaves(root: Node) -> list[Node]:
    found, stack = [], list(root.children.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        if not node.children:
            found.append(node)
    return found


def _common(a: list[int], i: int, b: list[int], j: int, stop: int) -> int:
    """Length of the common run of a[i:] and b[j:stop]; slices are compared first, since that runs in C."""
    limit = min(len(a) - i, stop - j)
    done = 0
    while done < limit:
        n = min(_CHUNK, limit - done)
        if a[i + done : i + done + n] != b[j + done : j + done + n]:
            break
        done += n
    else:
        return done
    while a[i + done] == b[j + done]:
        done += 1
    return done
