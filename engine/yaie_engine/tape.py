"""The tape of the flight recorder: what changed in each step, and the frame that the changes lead to.

A frame is the state of tree and block tables after a step. The recorder keeps one, the frame before its oldest step;
every later one follows from it by `Frame.apply`, which costs what the step changed. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from .sequence import EndState

LeftState = Literal["waiting", "swapped"] | EndState
PUT_BACK: Final = ("waiting", "swapped")
"""States of those that stopped running and are queued again."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The content of a node after a step: what it kept of its tokens and blocks, and what follows them.

    `parent` is the id of the node above; a root is no node of a frame.
    """

    id: int
    parent: int
    namespace: str
    start: int
    tokens_kept: int
    token_ids: tuple[int, ...]
    blocks_kept: int
    blocks: tuple[int, ...]
    used_step: int


@dataclass(frozen=True, slots=True)
class TreeChange:
    """`wiped` empties the tree first; then come `nodes`; `removed` are gone; `used` (id, step) became recent."""

    wiped: bool = False
    nodes: tuple[NodeChange, ...] = ()
    removed: tuple[int, ...] = ()
    used: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TableChange:
    """The block table of a running sequence after a step, as a change, and how many tokens have their KV."""

    label: str
    kept: int
    blocks: tuple[int, ...]
    num_computed: int


@dataclass(frozen=True, slots=True)
class TapeStep:
    """What one step changed; goes with the step record of the same number.

    `at` is the end of the step in seconds since the epoch. `arrived` were queued since the step before; `admitted`
    (label, tokens taken from the cache) began to run; `left` (label, state) stopped: "waiting" means preempted, and
    "swapped" preempted with its KV in host blocks. `host_held` of these are held for swapped sequences after the step.
    """

    step: int
    at: float
    arrived: tuple[str, ...] = ()
    admitted: tuple[tuple[str, int], ...] = ()
    left: tuple[tuple[str, LeftState], ...] = ()
    tables: tuple[TableChange, ...] = ()
    tree: TreeChange = TreeChange()
    host_held: int = 0

    @property
    def ended(self) -> dict[str, LeftState]:
        """Who stopped for good, and how."""
        return {label: state for label, state in self.left if state not in PUT_BACK}


@dataclass(slots=True)
class NodeState:
    """One node of a frame."""

    id: int
    parent: int
    namespace: str
    start: int
    token_ids: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    used_step: int = 0


@dataclass(slots=True)
class TableState:
    """The block table of one running sequence."""

    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0


@dataclass(slots=True)
class Frame:
    """Tree, block tables and queue after step `step`; labels are those of the views."""

    step: int = 0
    nodes: dict[int, NodeState] = field(default_factory=dict)
    tables: dict[str, TableState] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)

    def apply(self, change: TapeStep) -> None:
        """Go on by one step."""
        self.step = change.step
        self.waiting.update(dict.fromkeys(change.arrived))
        for label, _ in change.admitted:
            self.waiting.pop(label, None)
        for table in change.tables:
            state = self.tables.setdefault(table.label, TableState())
            state.blocks[table.kept :] = table.blocks
            state.num_computed = table.num_computed
        for label, reason in change.left:
            self.tables.pop(label, None)
            self.waiting.pop(label, None)
            if reason in PUT_BACK:
                self.waiting[label] = None
        self._apply_tree(change.tree)

    def _apply_tree(self, tree: TreeChange) -> None:
        if tree.wiped:
            self.nodes.clear()
        for change in tree.nodes:
            node = self.nodes.setdefault(change.id, NodeState(change.id, 0, change.namespace, 0))
            node.parent, node.start, node.used_step = change.parent, change.start, change.used_step
            node.namespace = change.namespace
            node.token_ids[change.tokens_kept :] = change.token_ids
            node.blocks[change.blocks_kept :] = change.blocks
        for gone in tree.removed:
            self.nodes.pop(gone, None)
        for used, step in tree.used:
            if used in self.nodes:
                self.nodes[used].used_step = step

    def copy(self) -> Frame:
        """A frame that can go on by itself."""
        return Frame(
            self.step,
            {
                i: NodeState(i, n.parent, n.namespace, n.start, [*n.token_ids], [*n.blocks], n.used_step)
                for i, n in self.nodes.items()
            },
            {label: TableState([*table.blocks], table.num_computed) for label, table in self.tables.items()},
            dict(self.waiting),
        )


@dataclass(frozen=True, slots=True)
class Tape:
    """A recorder's ring: the frame before its oldest step, and every step since."""

    base: Frame
    steps: tuple[TapeStep, ...]

    def frames(self) -> Iterator[Frame]:
        """The frame after each step in turn. One frame is moved along: copy it to keep it."""
        frame = self.base.copy()
        for change in self.steps:
            frame.apply(change)
            yield frame

    def renamed(self, name: Callable[[str], str]) -> Tape:
        """The same tape with `name(namespace)` for every namespace."""
        base = self.base.copy()
        for node in base.nodes.values():
            node.namespace = name(node.namespace)
        return Tape(base, tuple(_renamed(step, name) for step in self.steps))


def _renamed(step: TapeStep, name: Callable[[str], str]) -> TapeStep:
    if not any(change.namespace for change in step.tree.nodes):
        return step
    nodes = tuple(replace(change, namespace=name(change.namespace)) for change in step.tree.nodes)
    return replace(step, tree=replace(step.tree, nodes=nodes))
