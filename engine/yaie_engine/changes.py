"""What blocks and nodes did since it was last taken: the raw material of a step record. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .snapshot import BlockEvents, TreeEvents
from .tape import NodeChange, TreeChange

if TYPE_CHECKING:
    from .radix_tree import Node


@dataclass(slots=True)
class Changes:
    """Block ids and node ids in the order in which things happened.

    `touched` holds, for each node whose content changed, how many tokens and blocks at its front are as they were;
    `used` the nodes that became recent, and in which step.
    """

    allocated: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    swapped: list[tuple[int, int]] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    extended: list[int] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    touched: dict[Node, tuple[int, int]] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    wiped: bool = False

    @property
    def pending(self) -> bool:
        """Whether anything happened to a block or a node since all of it was last taken."""
        blocks = self.allocated or self.freed or self.evicted or self.copied or self.swapped
        return bool(blocks or self.touched or self.removed or self.wiped)

    def touch(self, node: Node, tokens: int, blocks: int) -> None:
        """The content of `node` changed behind its first `tokens` tokens and `blocks` blocks."""
        kept = self.touched.get(node, (tokens, blocks))
        self.touched[node] = (min(tokens, kept[0]), min(blocks, kept[1]))

    def wipe(self) -> None:
        """The whole tree is gone."""
        self.touched.clear()
        self.used.clear()
        self.wiped = True

    def take_tree(self) -> TreeChange:
        """What became of the nodes, as frozen data that a frame can apply; starts again empty."""
        nodes = tuple(
            NodeChange(
                id=node.id,
                parent=node.parent.id,
                namespace=node.namespace,
                start=node.start,
                tokens_kept=tokens,
                token_ids=tuple(node.token_ids[tokens:]),
                blocks_kept=blocks,
                blocks=tuple(node.blocks[blocks:]),
                used_step=node.used_step,
            )
            for node, (tokens, blocks) in self.touched.items()
            if node.parent is not None
        )
        change = TreeChange(self.wiped, nodes, tuple(self.removed), tuple(self.used.items()))
        self.touched.clear()
        self.used.clear()
        self.wiped = False
        return change

    def take(self) -> tuple[BlockEvents, TreeEvents]:
        """The events so far as frozen data; the lists start again empty."""
        events = (
            BlockEvents(
                tuple(self.allocated), tuple(self.freed), tuple(self.evicted), tuple(self.copied), tuple(self.swapped)
            ),
            TreeEvents(tuple(self.added), tuple(dict.fromkeys(self.extended)), tuple(self.split), tuple(self.removed)),
        )
        for happened in (self.allocated, self.freed, self.evicted, self.copied, self.swapped):
            happened.clear()
        for nodes in (self.added, self.extended, self.split, self.removed):
            nodes.clear()
        return events
