"""Which part of a radix tree is drawn: rows in drawing order, the rest counted in "+N more" rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from yaie_engine.errors import RequestError
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, NodeView, StateView

from . import state_nodes
from .figures import TIMES

EMPTY_ROOT = NodeView(0, None, 0, (), "", (), 0, 0, "", ())
EMPTY_WORDS = "The cache holds no prefix yet."


@dataclass(frozen=True, slots=True)
class Sums:
    """Nodes, tokens and owned blocks of a part of the tree; roots, which hold no token, are not counted as nodes."""

    nodes: int = 0
    tokens: int = 0
    blocks: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.nodes + other.nodes, self.tokens + other.tokens, self.blocks + other.blocks)


@dataclass(frozen=True, slots=True)
class Row:
    """One drawn line: a node, or the `hidden` part below `parent`.

    `rails` says for each level above whether more siblings follow there, the last entry being the row's own level.
    """

    node: NodeView | None
    parent: int | None
    rails: tuple[bool, ...]
    hidden: Sums = Sums()
    on_path: bool = False


@dataclass(frozen=True, slots=True)
class TreeView:
    """Rows in depth-first order. Tokens of the drawn nodes and of the hidden parts sum to `totals.tokens`.

    `states`: the kept states behind the nodes that stand for one; `empty`: what is said where there is no node.
    """

    rows: tuple[Row, ...]
    totals: Sums
    namespaces: int
    path_words: str = ""
    states: dict[int, StateView] = field(default_factory=dict)
    empty: str = EMPTY_WORDS


def state_of(node: NodeView) -> str:
    """The block state a node stands for: "cached" (evictable), "held" by one request, or "shared"."""
    return ("cached", "held")[node.ref_count] if node.ref_count < 2 else "shared"


def state_words(node: NodeView) -> str:
    """The state in words, with the number of sharers."""
    return f"shared {TIMES}{node.ref_count}" if node.ref_count > 1 else state_of(node)


def last_used(node: NodeView, step: int) -> str:
    """`in use`, `this step`, or `5 steps ago`."""
    if node.ref_count:
        return "in use"
    age = step - node.last_used_step
    if age <= 0:
        return "this step"
    return f"{age:,} step{'' if age == 1 else 's'} ago"


class TreeIndex:
    """A snapshot's nodes by id, with children (most tokens below first) and the sums of every subtree."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes = {node.id: node for node in nodes} or {0: EMPTY_ROOT}
        self.children: dict[int, list[NodeView]] = {}
        self.roots = [node for node in self.nodes.values() if node.parent is None]
        for node in self.nodes.values():
            if node.parent is not None:
                self.children.setdefault(node.parent, []).append(node)
        self.sums: dict[int, Sums] = {}
        for node in reversed(self._top_down()):
            own = Sums(int(node.num_tokens > 0), node.num_tokens, len(node.blocks))
            self.sums[node.id] = sum((self.sums[child.id] for child in self.below(node)), own)
        for siblings in self.children.values():
            siblings.sort(key=lambda node: (-self.sums[node.id].tokens, node.id))

    def below(self, node: NodeView) -> list[NodeView]:
        return self.children.get(node.id, [])

    def upwards(self, node: NodeView) -> list[NodeView]:
        """The node and its ancestors, root first."""
        path = [node]
        while path[-1].parent is not None:
            path.append(self.nodes[path[-1].parent])
        return path[::-1]

    def start_of(self, node: NodeView) -> int:
        """The position of the node's first token."""
        return sum(above.num_tokens for above in self.upwards(node)[:-1])

    def path_of_tokens(self, token_ids: tuple[int, ...]) -> tuple[list[NodeView], int]:
        """The nodes a token sequence runs through, root first, and how many of its tokens they hold.

        A sequence does not say its namespace, so the one that knows most of it is taken.
        """
        starts = [
            *self.roots,
            *(node for node in self.nodes.values() if node.parent is not None and not node.num_tokens),
        ]
        return max((self._walk(start, token_ids) for start in starts), key=lambda found: found[1])

    def _walk(self, start: NodeView, token_ids: tuple[int, ...]) -> tuple[list[NodeView], int]:
        path, known = self.upwards(start), 0
        while known < len(token_ids):
            found = [c for c in self.below(path[-1]) if c.token_ids[:1] == token_ids[known : known + 1]]
            if not found:
                break
            # One in a tree; kept states may differ later on.
            equal, _, child = max(
                (common_prefix(c.token_ids, token_ids[known : known + c.num_tokens]), -c.id, c) for c in found
            )
            path.append(child)
            known += equal
            if equal < child.num_tokens:
                break
        return path, known

    def _top_down(self) -> list[NodeView]:
        order = list(self.roots)
        for node in order:
            order.extend(self.below(node))
        return order


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """How many items two sequences have in common from their start."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def tree_view(
    snapshot: EngineSnapshot, *, depth: int | None, request: str | RequestRecord | None, max_nodes: int
) -> TreeView:
    """Choose what is drawn: level by level up to `depth` and `max_nodes`; the path of `request` is always there."""
    if depth is not None and depth < 0:
        raise RequestError(f"depth is {depth}: use 0 (the root alone) or more")
    if max_nodes < 1:
        raise RequestError(f"max_nodes is {max_nodes}: use 1 or more")
    nodes, states = state_nodes.with_states(snapshot)
    index = TreeIndex(nodes)
    path = {node.id for node in request_path(index, snapshot, request)} if request is not None else set()
    shown = _chosen(index, path, depth, max_nodes)
    namespaces = {node.namespace for node in index.nodes.values() if node.num_tokens}
    name = request.request_id if isinstance(request, RequestRecord) else request
    totals = sum((index.sums[root.id] for root in index.roots), Sums())
    words, empty = f"path of {name}" if name else "", EMPTY_WORDS
    if snapshot.model.tier == "state":
        empty = state_nodes.EMPTY_WORDS
    return TreeView(tuple(_rows(index, shown, path)), totals, len(namespaces), words, states, empty)


def request_path(index: TreeIndex, snapshot: EngineSnapshot, request: str | RequestRecord) -> list[NodeView]:
    """The nodes of a running request by id (all its choices), or of an ended one by the tokens in its record."""
    if isinstance(request, RequestRecord):
        return index.path_of_tokens(request.prompt_token_ids + next(iter(request.output_token_ids), ()))[0]
    check_request(snapshot, request)
    held = [n for n in index.nodes.values() if any(is_choice(name, request) for name in n.request_ids)]
    return [above for node in held for above in index.upwards(node)]


def check_request(snapshot: EngineSnapshot, request: str) -> None:
    """Raise RequestError, naming the requests there are, when the snapshot does not know `request`."""
    if not any(is_choice(view.request_id, request) for view in snapshot.requests):
        known = ", ".join(view.request_id for view in snapshot.requests[:8])
        raise RequestError(f"no running request {request!r}: " + (f"there are {known}" if known else "none runs now"))


def is_choice(name: str, request: str) -> bool:
    """Whether `name` is the request itself or one of its further choices (`id/index`)."""
    return name == request or name.startswith(f"{request}/")


def _chosen(index: TreeIndex, path: Collection[int], depth: int | None, max_nodes: int) -> set[int]:
    shown = {root.id for root in index.roots} | set(path)
    level, reached = list(index.roots), 0
    while level and (depth is None or reached < depth):
        level = [child for node in level for child in index.below(node)]
        room = max(max_nodes - len(shown), 0)
        fresh = [node.id for node in level if node.id not in shown]
        shown.update(fresh[:room])
        level = [node for node in level if node.id in shown]
        reached += 1
    return shown


def _rows(index: TreeIndex, shown: set[int], path: Collection[int]) -> list[Row]:
    rows: list[Row] = []
    stack = [Row(root, None, (), on_path=root.id in path) for root in reversed(index.roots)]
    while stack:
        row = stack.pop()
        rows.append(row)
        if row.node is not None:
            stack.extend(reversed(_rows_below(index, shown, path, row, row.node)))
    return rows


def _rows_below(index: TreeIndex, shown: set[int], path: Collection[int], above: Row, node: NodeView) -> list[Row]:
    drawn = [child for child in index.below(node) if child.id in shown]
    hidden = sum((index.sums[child.id] for child in index.below(node) if child.id not in shown), Sums())
    collapsed = len(drawn) < len(index.below(node))
    rows = [
        Row(child, node.id, (*above.rails, collapsed or child is not drawn[-1]), on_path=child.id in path)
        for child in drawn
    ]
    if collapsed:
        rows.append(Row(None, node.id, (*above.rails, False), hidden))
    return rows
