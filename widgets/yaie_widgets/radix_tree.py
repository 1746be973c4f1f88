"""The radix tree of a snapshot as a Graphviz graph."""

from __future__ import annotations

import graphviz

from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, NodeView, StateView

from . import label as markup
from .drawing import Drawing, checked_format
from .figures import count, counted, listed, memory, ranges
from .palette import LIGHT
from .radix_text import radix_text
from .safe_text import excerpt, shorten
from .state_nodes import covers, figures, hits, totals, used
from .tree_view import Row, TreeView, last_used, state_of, state_words, tree_view

NAME = "radix_tree"
MAX_NODES = 60
_TEXT_COLUMNS = 36
_WIDTH = 264
_STRIP = 5
_BOX = _WIDTH + _STRIP + 3 + 8 + 2  # a node with its strip, padding and frame
_HEADER_WIDTH = 520
_GRAPH = {"rankdir": "LR", "splines": "line", "bgcolor": LIGHT["bg"], "labelloc": "t", "labeljust": "l", "pad": "0.16"}
_SPACING = {"ranksep": "0.55", "nodesep": "0.13", "ordering": "out", "charset": "utf-8"}
_NODE = {"shape": "plain", "fontname": markup.SANS, "fontsize": "11"}
_EDGE = {"arrowhead": "none", "color": LIGHT["edge"], "headport": "w", "tailport": "e"}


def draw_radix_tree(
    snapshot: EngineSnapshot,
    *,
    depth: int | None = None,
    request: str | RequestRecord | None = None,
    max_nodes: int = MAX_NODES,
    format: str = "svg",
) -> Drawing:
    """Draw the prefix cache: text, tokens, blocks, references, age and holders of each node.

    `request` (the id of a running one, or the record of an ended one) marks its path, which is always drawn. What
    `depth` (levels below the root) and `max_nodes` leave out is counted in "+N more".

    Raises:
        RequestError: a value is out of range, or no such request runs.
    """
    chosen = checked_format(format)
    view = tree_view(snapshot, depth=depth, request=request, max_nodes=max_nodes)
    title = f"step {snapshot.step}, nodes {count(view.totals.nodes)}, tokens {count(view.totals.tokens)}"
    tooltips = {_name(row): _tooltip(row.node, view, snapshot.step) for row in view.rows if row.node}
    return Drawing(NAME, title, _dot(snapshot, view), radix_text(snapshot, view), tooltips, chosen)


def _dot(snapshot: EngineSnapshot, view: TreeView) -> str:
    graph = graphviz.Digraph(NAME, graph_attr={**_GRAPH, **_SPACING}, node_attr=_NODE, edge_attr=_EDGE)
    graph.attr(label=markup.label(_header(snapshot, view)))
    longest = max((row.node.num_tokens for row in view.rows if row.node), default=0)
    for row in view.rows:
        if row.node is None:
            graph.node(_name(row), label=markup.label(_more(row)), tokens=str(row.hidden.tokens))
        else:
            drawn = (
                _root(row.node, view) if not row.node.num_tokens else _box(row, row.node, view, snapshot.step, longest)
            )
            graph.node(_name(row), label=markup.label(drawn), tokens=str(row.node.num_tokens))
        if row.parent is not None:
            graph.edge(f"n{row.parent}", _name(row), **_edge(row))
    return str(graph.source)


def _name(row: Row) -> str:
    return f"n{row.node.id}" if row.node else f"more{row.parent}"


def _edge(row: Row) -> dict[str, str]:
    if row.on_path:
        return {"color": LIGHT["ink"], "penwidth": "2.4", "class": "path"}
    return {"style": "dashed"} if row.node is None else {}


def _header(snapshot: EngineSnapshot, view: TreeView) -> str:
    # Figures follow their names here, so that "N tokens" in the graph is always one node's count.
    pairs = [("Nodes", count(view.totals.nodes)), ("Tokens", count(view.totals.tokens))]
    pairs += [("Blocks", count(view.totals.blocks)), ("Step", count(snapshot.step))]
    pairs += totals(snapshot)
    if view.namespaces > 1:
        pairs.append(("Namespaces", count(view.namespaces)))
    entries = [("cached", "cached, no running request"), ("held", "held by one"), ("shared", "shared by two or more")]
    if snapshot.model.tier == "state":
        entries = [("cached", "a state that is kept, copied for each prompt"), *entries[1:]]
    title = (markup.figure("Radix tree", 15, bold=True), markup.gap(16), markup.figure(view.path_words, 12, "ink2"))
    parts = [
        markup.line(_HEADER_WIDTH, *title),
        markup.spacer(8),
        markup.totals(_HEADER_WIDTH, *pairs),
        markup.spacer(8),
    ]
    return markup.lines(*parts, markup.legend(_HEADER_WIDTH, *entries), markup.spacer(14))


def _root(node: NodeView, view: TreeView) -> str:
    words = f"namespace {shorten(node.namespace, 24)}" if node.namespace else "root"
    if node.parent is None and not view.totals.nodes:
        words = f"root · {view.empty}"
    width = 0 if node.parent is None else _BOX - 10
    inner = markup.line(
        width, markup.figure(words, 12, bold=True), markup.gap(6), markup.figure("0 tokens", 11, "ink2")
    )
    return markup.table(markup.row(markup.cell(inner)), border=1, cellpadding=4, color=LIGHT["edge"])


def _box(row: Row, node: NodeView, view: TreeView, step: int, longest: int) -> str:
    state = view.states.get(node.id)
    body = markup.lines(
        markup.line(_WIDTH, markup.mono(excerpt(node.text, _TEXT_COLUMNS), 12, _WIDTH)),
        markup.spacer(3),
        _figures(node, step) if state is None else _state_figures(node, state),
        markup.spacer(1),
        _holders(node) if state is None else _state_use(state),
        markup.spacer(4),
        _bar(node, longest),
    )
    strip = markup.cell(width=_STRIP, bgcolor=LIGHT[state_of(node)])
    rows = markup.row(strip, markup.cell(width=3), markup.cell(body, cellpadding=4))
    return markup.table(rows, border=2 if row.on_path else 1, color=LIGHT["ink" if row.on_path else "edge"])


def _figures(node: NodeView, step: int) -> str:
    tokens = markup.figure(counted(node.num_tokens, "token"), 11, width=68)
    blocks = markup.figure(counted(len(node.blocks), "block"), 11, width=58)
    state = markup.figure(state_words(node), 11, bold=True, width=76 if node.ref_count else 52)
    return markup.line(_WIDTH, tokens, blocks, state, markup.figure(last_used(node, step), 11, "ink2"))


def _holders(node: NodeView) -> str:
    owned = markup.figure(
        f"blocks {ranges(node.blocks, 3)}" if node.blocks else "no block of its own", 11, "ink2", width=126
    )
    return markup.line(_WIDTH, owned, markup.figure(listed((shorten(r, 14) for r in node.request_ids), 2), 11, "ink2"))


def _state_figures(node: NodeView, state: StateView) -> str:
    tokens = markup.figure(counted(node.num_tokens, "token"), 11, width=68)
    size = markup.figure(memory(state.num_bytes), 11, width=58)
    return markup.line(_WIDTH, tokens, size, markup.figure(hits(state), 11, bold=True, width=76))


def _state_use(state: StateView) -> str:
    stands = markup.figure(covers(state) or "a whole state", 11, "ink2", width=126)
    return markup.line(_WIDTH, stands, markup.figure(used(state), 11, "ink2"))


def _bar(node: NodeView, longest: int) -> str:
    """The node's length as a bar on one scale for the whole tree."""
    width = max(round(_WIDTH * node.num_tokens / longest), 2)
    rest = [markup.block("sunk", _WIDTH - width, 3)] if width < _WIDTH else []
    return markup.line(_WIDTH, markup.block(state_of(node), width, 3), *rest)


def _more(row: Row) -> str:
    words = f"+{count(row.hidden.nodes)} more"
    rest = f"{counted(row.hidden.tokens, 'token')} · {counted(row.hidden.blocks, 'block')}"
    pieces = (markup.figure(words, 12, bold=True), markup.gap(6), markup.figure(rest, 11, "ink2"))
    inner = markup.line(0, *pieces)
    box = markup.table(markup.row(markup.cell(inner)), border=1, color=LIGHT["edge"], style="dashed", cellpadding=3)
    # An invisible filler makes it as wide as a node, so that it starts where its siblings start.
    filler = max(_BOX - sum(piece.width for piece in pieces) - 8, 0)
    return markup.table(markup.row(markup.cell(box), markup.cell(width=filler)))


def _tooltip(node: NodeView, view: TreeView, step: int) -> str:
    if node.id in view.states:
        state = view.states[node.id]
        words = ["whole state", state.label, counted(node.num_tokens, "token"), *figures(state)]
        return "\n".join([" · ".join(words), excerpt(node.text, 400)])
    if not node.num_tokens:
        return f"root of namespace {node.namespace}" if node.namespace else "root"
    lines = [
        f"node {node.id} · {counted(node.num_tokens, 'token')} · {state_words(node)} · {last_used(node, step)}",
        f"blocks {ranges(node.blocks, 12) or '—'}",
        f"requests {listed(node.request_ids, 12) or '—'}",
    ]
    lines += [f"namespace {node.namespace}"] if node.namespace else []
    return "\n".join([*lines, excerpt(node.text, 400)])
