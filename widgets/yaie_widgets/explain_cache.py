"""A block or a tree node in plain words and figures."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_engine.errors import RequestError
from yaie_engine.snapshot import EngineSnapshot, NodeView, RequestView

from .explanation import Explanation, Row
from .figures import TIMES, count, counted, listed, ranges
from .pool_view import COLUMNS, BlockInfo, PoolView
from .prompt_split import Decode
from .safe_text import excerpt, shorten
from .tree_view import TreeIndex, last_used, state_words

_QUOTE = 120
_IDS = 16
_NOBODY = "no running request: it can be evicted when blocks are needed"


def explain_block(snapshot: EngineSnapshot, block_id: int, *, decode: Decode | None = None) -> Explanation:
    """Who owns a physical block, who shares it, and which tokens lie in it.

    Raises:
        RequestError: there is no such block; the text names the valid range.
    """
    total = snapshot.blocks.total
    if not 0 <= block_id < total:
        empty = f"the pool has no blocks while the engine is {snapshot.state}"
        raise RequestError(f"no block {block_id}: " + (f"blocks are 0 to {total - 1}" if total else empty))
    info = PoolView(snapshot, None, COLUMNS).block(block_id)
    words = f"shared {TIMES}{len(info.holders)}" if info.state == "shared" else info.state
    index = TreeIndex(snapshot.tree)
    positions = _positions(snapshot, info, index)
    tokens = _tokens_at(index, info.owner, positions) if info.owner else ()
    rows = [*_owner(info), *_holders(snapshot, info), *_contents(snapshot, info, positions, tokens, decode)]
    data = {
        "block": block_id,
        "state": info.state,
        "owner": info.owner.id if info.owner else None,
        "request_ids": list(info.holders),
        "positions": [positions.start, positions.stop] if positions else None,
        "token_ids": list(tokens),
    }
    return Explanation("block", f"Block {block_id} · {words}", tuple(rows), data)


def explain_node(snapshot: EngineSnapshot, node_id: int, *, decode: Decode | None = None) -> Explanation:
    """Which tokens a tree node stands for, who holds it and which blocks it owns.

    Raises:
        RequestError: there is no such node; the text names the valid ones.
    """
    index = TreeIndex(snapshot.tree)
    node = index.nodes.get(node_id)
    if node is None:
        ids = sorted(index.nodes)
        raise RequestError(f"no node {node_id}: the tree has {counted(len(ids), 'node')}, {ranges(ids)}")
    data = {
        "node": node.id,
        "parent": node.parent,
        "children": [child.id for child in index.below(node)],
        "start": index.start_of(node),
        "num_tokens": node.num_tokens,
        "token_ids": list(node.token_ids),
        "text": node.text,
        "blocks": list(node.blocks),
        "ref_count": node.ref_count,
        "last_used_step": node.last_used_step,
        "namespace": node.namespace,
        "request_ids": list(node.request_ids),
    }
    about = f"{counted(node.num_tokens, 'token')} · {state_words(node)}" if node.num_tokens else "root"
    title = f"Node {node_id} · {about}"
    return Explanation("node", title, tuple(_node_rows(snapshot, index, node)), data)


def _node_rows(snapshot: EngineSnapshot, index: TreeIndex, node: NodeView) -> Iterator[Row]:
    if node.num_tokens:
        start = index.start_of(node)
        places = f"positions {count(start)} to {count(start + node.num_tokens - 1)}"
        yield Row("Text", excerpt(node.text, _QUOTE), quote=True)
        yield Row("Tokens", f"{places} · ids {_ids(node.token_ids)}")
    else:
        yield Row("Text", "a root: it holds no token")
    if node.namespace:
        yield Row("Namespace", f"{shorten(node.namespace, 60)}: only requests with this cache salt see it")
    yield Row("Tree", _neighbours(index, node))
    if node.num_tokens:
        yield from _node_use(snapshot, node)


def _neighbours(index: TreeIndex, node: NodeView) -> str:
    above = "no node above" if node.parent is None else f"node {node.parent} above"
    below = [str(child.id) for child in index.below(node)]
    return f"{above} · {counted(len(below), 'node')} directly below" + (f": {listed(below, 8)}" if below else "")


def _node_use(snapshot: EngineSnapshot, node: NodeView) -> Iterator[Row]:
    owned = f"{counted(len(node.blocks), 'block')}: {ranges(node.blocks)}" if node.blocks else "owns no block"
    yield Row("Blocks", owned)
    holders = listed((shorten(name, 24) for name in node.request_ids), 12)
    yield Row("Held by", holders or _NOBODY)
    yield Row("Last used", _last_used(snapshot, node))


def _last_used(snapshot: EngineSnapshot, node: NodeView) -> str:
    words = last_used(node, snapshot.step)
    return words if node.ref_count else f"{words} (step {count(node.last_used_step)})"


def _owner(info: BlockInfo) -> Iterator[Row]:
    if info.owner:
        yield Row("Owner", f"node {info.owner.id}: {excerpt(info.owner.text, 60)}", quote=True)
    elif info.holders:
        yield Row("Owner", f"request {info.holders[0]}: not in the tree, nobody else can share it yet")
    else:
        yield Row("Owner", "nobody: it is free")


def _holders(snapshot: EngineSnapshot, info: BlockInfo) -> Iterator[Row]:
    for view in snapshot.requests:
        if view.request_id in info.holders:
            name = f"{shorten(view.request_id, 24)} ({view.state})"
            yield Row("Held by", f"{name}, as its logical block {_logical(view, info)}")
    if info.state == "cached":
        yield Row("Held by", _NOBODY)


def _logical(view: RequestView, info: BlockInfo) -> int:
    return view.block_table.index(info.id)


def _positions(snapshot: EngineSnapshot, info: BlockInfo, index: TreeIndex) -> range:
    """The token positions that lie in the block."""
    size = snapshot.blocks.block_size
    if info.owner:
        start = index.start_of(info.owner)
        first = (start // size + info.owner.blocks.index(info.id)) * size
        return range(first, min(first + size, start + info.owner.num_tokens))
    for view in snapshot.requests:
        if view.request_id in info.holders:
            first = _logical(view, info) * size
            return range(first, max(min(first + size, view.num_computed_tokens), first))
    return range(0)


def _tokens_at(index: TreeIndex, owner: NodeView, positions: range) -> tuple[int, ...]:
    path = [token for node in index.upwards(owner) for token in node.token_ids]
    return tuple(path[positions.start : positions.stop])


def _contents(
    snapshot: EngineSnapshot, info: BlockInfo, positions: range, tokens: tuple[int, ...], decode: Decode | None
) -> Iterator[Row]:
    size = snapshot.blocks.block_size
    if positions:
        filled = f"{count(len(positions))} of {counted(size, 'token')}"
        yield Row("Tokens", f"positions {count(positions.start)} to {count(positions.stop - 1)}, {filled} filled")
    if tokens:
        yield Row("Ids", _ids(tokens))
        if decode is not None:
            yield Row("Text", excerpt(decode(tokens), _QUOTE), quote=True)
    if info.owner:
        yield Row("Last used", _last_used(snapshot, info.owner))


def _ids(tokens: tuple[int, ...]) -> str:
    shown = " ".join(str(token) for token in tokens[:_IDS])
    return f"{shown} … ({count(len(tokens))} in all)" if len(tokens) > _IDS else shown
