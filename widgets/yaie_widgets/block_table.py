"""The block tables and the pool of a snapshot as a Graphviz graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import graphviz

from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, NodeView, RequestView

from . import label as markup
from . import state_nodes
from .block_text import block_text
from .drawing import Drawing, checked_format
from .figures import count, counted, listed, ranges
from .palette import LIGHT
from .pool_view import COLUMNS, BlockInfo, MapRow, PoolView, progress, shared_in
from .safe_text import excerpt, shorten

NAME = "block_table"
MAX_BLOCKS = 600
_MAX_NODES = 12
_CELL, _SMALL, _HEIGHT, _GAP, _GUTTER = 30, 8, 22, 2, 40
_WIDTH = _GUTTER + COLUMNS * (_CELL + _GAP) + 2 * _GAP
_GRAPH = {"bgcolor": LIGHT["bg"], "pad": "0.16", "ranksep": "0.14", "charset": "utf-8"}
_NODE = {"shape": "plain", "fontname": markup.SANS, "fontsize": "11"}


def draw_block_table(
    snapshot: EngineSnapshot,
    *,
    request: str | RequestRecord | None = None,
    max_blocks: int = MAX_BLOCKS,
    format: str = "svg",
) -> Drawing:
    """Draw the pool block by block, and for each running request its logical blocks with the physical ones behind.

    `request` (the id of a running one, or the record of an ended one, as far as the cache still holds its tokens) draws
    its tables alone and makes the blocks of others small in the map. At most `max_blocks` cells are
    drawn in the map and as many in the tables; the rest is counted in "+N more". Stretches of free blocks are one line.

    Raises:
        RequestError: a value is out of range, or no such request runs.
    """
    chosen = checked_format(format)
    pool = PoolView(snapshot, request, max_blocks)
    counts = pool.counts
    title = f"free {counts.free:,} + cached {counts.cached:,} + held {counts.held:,} = total {counts.total:,}"
    return Drawing(NAME, title, _dot(pool), block_text(pool), dict(_tooltips(pool)), chosen)


def _dot(pool: PoolView) -> str:
    graph = graphviz.Digraph(NAME, graph_attr=_GRAPH, node_attr=_NODE, edge_attr={"style": "invis"})
    parts = [("pool", _pool(pool)), *_tables(pool)]
    nodes = pool.cached_nodes()
    if nodes and pool.request is None:
        parts.append(("cached", _cached(nodes)))
    if pool.snapshot.states and pool.request is None:
        parts.append(("states", _words(state_nodes.BESIDE, state_nodes.sum_words(pool.snapshot))))
    for name, drawn in parts:
        graph.node(name, label=markup.label(drawn))
    for (above, _), (below, _) in pairwise(parts):
        graph.edge(above, below)
    return str(graph.source)


def _pool(pool: PoolView) -> str:
    counts = pool.counts
    words = f"{counted(counts.total, 'block')} of {counted(counts.block_size, 'token')}"
    words += f" · request {shorten(pool.request, 30)}" if pool.request else ""
    title = (markup.figure("KV blocks", 15, bold=True), markup.gap(16), markup.figure(words, 12, "ink2"))
    pairs = [("Free", counts.free), ("Cached", counts.cached), ("Held", counts.held), ("Total", counts.total)]
    entries = [
        ("free", f"free {count(counts.free)}"),
        ("cached", f"cached, evictable {count(counts.cached)}"),
        ("held", f"held by one request {count(counts.held - pool.shared)}"),
        ("shared", f"shared, \u00d7n requests {count(pool.shared)}"),
    ]
    figures = [(name, count(number)) for name, number in pairs] + [("Step", count(pool.snapshot.step))]
    parts = [markup.line(_WIDTH, *title), markup.spacer(8), markup.totals(_WIDTH, *figures), markup.spacer(8)]
    parts += [markup.legend(_WIDTH, *entries), markup.spacer(8)]
    return markup.lines(*parts, *(_map_line(pool, row) for row in pool.map_rows()))


def _map_line(pool: PoolView, row: MapRow) -> str:
    if row.collapsed:
        return markup.line(_WIDTH, markup.gap(_GUTTER + _GAP), markup.figure(row.collapsed, 11, "ink2"))
    cells = [_map_cell(pool, pool.block(block)) for block in range(row.first, row.last + 1)]
    return _grid_line(str(row.first), cells)


def _grid_line(caption: str, cells: list[str]) -> str:
    number = markup.figure(caption, 10, "ink2", width=_GUTTER - 6, align="RIGHT")
    gutter = markup.cell(markup.line(_GUTTER, number, markup.gap(6)), fixedsize="TRUE", width=_GUTTER, height=_HEIGHT)
    blank = markup.cell(fixedsize="TRUE", width=_CELL, height=_HEIGHT)
    return markup.table(markup.row(gutter, *cells, *[blank] * (COLUMNS - len(cells))), cellspacing=_GAP)


def _map_cell(pool: PoolView, info: BlockInfo) -> str:
    if pool.stands_out(info):
        return _cell(info.state, pool.mark(info), f"b{info.id}")
    side = (_CELL - _SMALL) // 2
    small = markup.line(_CELL, markup.gap(side), markup.block(info.state, _SMALL, _SMALL), markup.gap(side))
    return markup.cell(small, fixedsize="TRUE", width=_CELL, height=_HEIGHT, align="CENTER", title=f"b{info.id}")


def _cell(state: str, words: str, title: str) -> str:
    colour = {"border": 1, "color": LIGHT["free"]} if state == "free" else {"bgcolor": LIGHT[state]}
    text = markup.text(words, 10 if len(words) < 5 else 8, f"on-{state}" if state != "free" else "ink2")
    return markup.cell(text, fixedsize="TRUE", width=_CELL, height=_HEIGHT, align="CENTER", title=title, **colour)


def _tables(pool: PoolView) -> Iterator[tuple[str, str]]:
    room = pool.max_blocks
    for place, view in enumerate(pool.tables):
        if room <= 0:
            hidden = len(pool.tables) - place
            yield "more_requests", _words(f"+{count(hidden)} more", counted(hidden, "request"))
            break
        yield f"request_{place + 1}", _table(pool, view, room, place)
        room -= len(view.block_table)
    for place, view in enumerate(pool.without_blocks[:4]):
        yield f"idle_{place}", _words(shorten(view.request_id, 30), f"{view.state} · holds no block")
    if len(pool.without_blocks) > 4:
        hidden = len(pool.without_blocks) - 4
        yield "more_idle", _words(f"+{count(hidden)} more", f"{counted(hidden, 'request')} without a block")


def _words(name: str, words: str) -> str:
    return markup.line(_WIDTH, markup.figure(name, 12, bold=True), markup.gap(8), markup.figure(words, 11, "ink2"))


def _table(pool: PoolView, view: RequestView, room: int, place: int) -> str:
    drawn = range(len(view.block_table[:room]))
    cells = [_table_cell(pool, view, place, logical) for logical in drawn]
    lines = [_grid_line(str(first), cells[first : first + COLUMNS]) for first in drawn[::COLUMNS]]
    if len(cells) < len(view.block_table):
        more = markup.figure(f"+{count(len(view.block_table) - len(cells))} more", 11, "ink2")
        lines.append(markup.line(_WIDTH, markup.gap(_GUTTER + _GAP), more))
    return markup.lines(_rule(), markup.spacer(6), _table_head(pool, view), markup.spacer(2), *lines)


def _table_head(pool: PoolView, view: RequestView) -> str:
    shared = f"{counted(len(view.block_table), 'block')}, {count(shared_in(view, pool))} shared"
    number = markup.figure(str(pool.numbers[view.request_id]), 12, width=_GUTTER - 8, align="RIGHT")
    pieces = [number, markup.gap(8 + 2 * _GAP), markup.figure(shorten(view.request_id, 24), 12, bold=True)]
    for words in (view.state, progress(view), shared):
        pieces += [markup.gap(10), markup.figure(words, 11, "ink2")]
    return markup.line(_WIDTH, *pieces)


def _rule() -> str:
    return markup.table(markup.row(markup.cell(width=_WIDTH, height=1, bgcolor=LIGHT["line"])))


def _table_cell(pool: PoolView, view: RequestView, place: int, logical: int) -> str:
    physical = view.block_table[logical]
    return _cell(pool.block(physical).state, str(physical), f"r{place}b{logical}")


def _cached(nodes: list[tuple[NodeView, tuple[int, ...]]]) -> str:
    """The nodes that eviction would take from, oldest first."""
    head = _words("Cached, next to be evicted first", counted(len(nodes), "node"))
    rows = [_cached_line(node, blocks) for node, blocks in nodes[:_MAX_NODES]]
    if len(nodes) > _MAX_NODES:
        rows.append(_words(f"+{count(len(nodes) - _MAX_NODES)} more", ""))
    return markup.lines(_rule(), markup.spacer(6), head, markup.spacer(4), *rows)


def _cached_line(node: NodeView, blocks: tuple[int, ...]) -> str:
    return markup.line(
        _WIDTH,
        markup.figure(f"node {node.id}", 11, width=72),
        markup.figure(counted(len(blocks), "block"), 11, width=72),
        markup.figure(ranges(blocks, 3), 11, "ink2", width=150),
        markup.mono(excerpt(node.text, 46), 12, 46 * 7 + 16),
    )


def _tooltips(pool: PoolView) -> Iterator[tuple[str, str]]:
    for row in pool.map_rows():
        if not row.collapsed:
            for block in range(row.first, row.last + 1):
                yield f"b{block}", _about(pool.block(block))
    size = pool.counts.block_size
    for number, view in enumerate(pool.tables):
        for logical, physical in enumerate(view.block_table):
            place = f"logical block {logical}, positions {logical * size} to {(logical + 1) * size - 1}"
            yield f"r{number}b{logical}", f"{place}\n{_about(pool.block(physical), 0)}"


def _about(info: BlockInfo, quote: int = 60) -> str:
    lines = [f"block {info.id} · {info.state}"]
    lines += [f"requests {listed(info.holders, 8)}"] if info.holders else []
    if info.owner:
        lines.append(f"owner node {info.owner.id}")
        lines += [excerpt(info.owner.text, quote)] if quote else []
    elif info.holders:
        lines.append(f"owner {info.holders[0]} (private)")
    return "\n".join(lines)
