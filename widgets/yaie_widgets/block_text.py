"""Block tables and pool for a terminal: the same figures as the picture."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_engine.snapshot import RequestView

from . import state_nodes
from .figures import DASH, TIMES, count, counted, ranges
from .pool_view import MapRow, PoolView, Segment, progress, shared_in
from .safe_text import columns, excerpt, pad, shorten

_MAX_SEGMENTS = 12
_MAX_LINES = 12


def block_text(pool: PoolView) -> str:
    """Counts, the map, one line for each request, and the cached nodes that eviction would take first."""
    return "\n".join([_head(pool), *_map(pool), "", *_requests(pool), *_cached(pool), *_states(pool)])


def _states(pool: PoolView) -> Iterator[str]:
    if pool.snapshot.states and pool.request is None:
        yield f"{state_nodes.BESIDE}: {state_nodes.sum_words(pool.snapshot)}"


def _head(pool: PoolView) -> str:
    counts = pool.counts
    sums = f"free {count(counts.free)} + cached {count(counts.cached)} + held {count(counts.held)}"
    shared = f" ({count(pool.shared)} shared)" if pool.shared else ""
    size = f"{counted(counts.block_size, 'token')} a block"
    return f"KV blocks   {sums}{shared} = total {count(counts.total)}   {size}   step {count(pool.snapshot.step)}"


def _map(pool: PoolView) -> Iterator[str]:
    yield f"  · free   c cached   n held by request n   {TIMES}n shared by n"
    width = len(str(max(pool.counts.total - 1, 0)))
    for row in pool.map_rows():
        if row.collapsed:
            yield f"  {' ' * width}  {row.collapsed}"
        else:
            yield f"  {row.first:>{width}} {_cells(pool, row)}"


def _cells(pool: PoolView, row: MapRow) -> str:
    signs = {"free": "·", "cached": "c"}
    shown = []
    for block in range(row.first, row.last + 1):
        info = pool.block(block)
        faded = "-" if info.holders and not pool.stands_out(info) else ""
        shown.append(faded or signs.get(info.state) or pool.mark(info))
    return "".join(f"{sign:>{pool.digits + 1}}" for sign in shown)


def _requests(pool: PoolView) -> Iterator[str]:
    if not pool.tables:
        yield "No running request holds a block."
    names = [f"{pool.numbers[view.request_id]:>3} {shorten(view.request_id, 24)}" for view in pool.tables]
    width = max((columns(name) for name in names), default=0)
    for name, view in list(zip(names, pool.tables, strict=True))[: pool.max_blocks]:
        yield f"{pad(name, width)}  {_figures(pool, view)}"
    hidden = len(pool.tables) - pool.max_blocks
    if hidden > 0:
        yield f"    +{count(hidden)} more"
    if pool.without_blocks:
        yield f"    {_idle(pool)}"


def _figures(pool: PoolView, view: RequestView) -> str:
    owned = f"{counted(len(view.block_table), 'block')}, {count(shared_in(view, pool))} shared"
    runs = pool.segments(view)
    shown = [_segment(run) for run in runs[:_MAX_SEGMENTS]]
    shown += [f"+{count(len(runs) - _MAX_SEGMENTS)} more"] if len(runs) > _MAX_SEGMENTS else []
    return f"{view.state:<9}  {progress(view):>18}  {owned:>21}   logical→physical {', '.join(shown)}"


def _segment(run: Segment) -> str:
    shared = f" ({TIMES}{run.sharers})" if run.sharers > 1 else ""
    if run.length == 1:
        return f"{run.logical}→{run.physical}{shared}"
    logical = f"{run.logical}{DASH}{run.logical + run.length - 1}"
    return f"{logical}→{run.physical}{DASH}{run.physical + run.length - 1}{shared}"


def _idle(pool: PoolView) -> str:
    states: dict[str, int] = {}
    for view in pool.without_blocks:
        states[view.state] = states.get(view.state, 0) + 1
    return ", ".join(f"{counted(number, 'request')} {state}" for state, number in states.items()) + " without a block"


def _cached(pool: PoolView) -> Iterator[str]:
    nodes = pool.cached_nodes()
    if not nodes or pool.request is not None:
        return
    yield f"Cached, next to be evicted first: {counted(len(nodes), 'node')}"
    for node, blocks in nodes[:_MAX_LINES]:
        yield f"  node {node.id:<4} {counted(len(blocks), 'block'):<9} {ranges(blocks, 3):<16} {excerpt(node.text, 46)}"
    if len(nodes) > _MAX_LINES:
        yield f"  +{count(len(nodes) - _MAX_LINES)} more"
