"""The block pool of a snapshot, block by block: state, holders, owner; and the part of it that is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaie_engine.errors import RequestError
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, NodeView, RequestView

from .figures import DASH, TIMES
from .tree_view import TreeIndex, check_request, is_choice

COLUMNS = 20
_NUMBERED = re.compile(r"req-(\d+)(?:/|$)")


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One physical block. `holders` are the running requests whose tables name it; `owner` is its tree node."""

    id: int
    holders: tuple[str, ...]
    owner: NodeView | None

    @property
    def state(self) -> str:
        """ "free", "cached", "held" (by one request) or "shared"."""
        if self.holders:
            return "held" if len(self.holders) == 1 else "shared"
        return "cached" if self.owner else "free"


@dataclass(frozen=True, slots=True)
class MapRow:
    """A line of the map: blocks `first` to `last`. `collapsed` lines stand for many and are said in words."""

    first: int
    last: int
    collapsed: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring logical blocks that lie in neighbouring physical blocks with equally many sharers."""

    logical: int
    physical: int
    length: int
    sharers: int


class PoolView:
    """What the block table draws. With `request`, its tables alone; blocks of others stay small in the map."""

    def __init__(self, snapshot: EngineSnapshot, request: str | RequestRecord | None, max_blocks: int) -> None:
        if max_blocks < COLUMNS:
            raise RequestError(f"max_blocks is {max_blocks}: use {COLUMNS} or more")
        if isinstance(request, str):
            check_request(snapshot, request)
        ended = ended_view(snapshot, request) if isinstance(request, RequestRecord) else None
        self.request = request.request_id if isinstance(request, RequestRecord) else request
        self.snapshot, self.max_blocks = snapshot, max_blocks
        self.counts = snapshot.blocks
        self._holders = holders_by_block(snapshot)
        self._owners = {block: node for node in snapshot.tree for block in node.blocks}
        self.shared = sum(len(holders) > 1 for holders in self._holders.values())
        everyone = [*snapshot.requests, *([ended] if ended else [])]
        holding = [view for view in everyone if view.block_table and view.state != "swapped"]
        self.numbers = {
            view.request_id: request_number(view.request_id, place) for place, view in enumerate(holding, 1)
        }
        self.tables = [view for view in holding if self.selects(view.request_id)]
        self.without_blocks = [view for view in everyone if view not in holding and self.selects(view.request_id)]
        self._selected = {block for view in self.tables for block in view.block_table}

    @property
    def digits(self) -> int:
        """Digits of the largest number in a cell, two at least."""
        return max(2, *(len(str(number)) for number in self.numbers.values())) if self.numbers else 2

    def block(self, block_id: int) -> BlockInfo:
        return BlockInfo(block_id, tuple(self._holders.get(block_id, ())), self._owners.get(block_id))

    def selects(self, request_id: str) -> bool:
        """Whether the filter, if any, lets the request through."""
        return self.request is None or is_choice(request_id, self.request)

    def stands_out(self, info: BlockInfo) -> bool:
        """Whether the block is drawn large: always without a filter, else when it is in a drawn table."""
        return self.request is None or info.id in self._selected

    def mark(self, info: BlockInfo) -> str:
        """What the map writes into the cell: sharers, or the number of the one holder."""
        if info.state == "shared":
            return f"{TIMES}{len(info.holders)}"
        return str(self.numbers.get(info.holders[0], "")) if info.holders else ""

    def map_rows(self) -> Iterator[MapRow]:
        """Lines of COLUMNS blocks; stretches of free lines, and what `max_blocks` cuts off, are collapsed."""
        used = {block // COLUMNS for block in (*self._holders, *self._owners)}
        drawn, free_from = 0, None
        for first in range(0, self.counts.total, COLUMNS):
            if drawn + COLUMNS > self.max_blocks:
                break
            # The first line is always drawn: an empty pool shows what it is made of.
            if first and first // COLUMNS not in used:
                free_from = first if free_from is None else free_from
                continue
            if free_from is not None:
                yield _free_row(free_from, first - 1)
                free_from = None
            drawn += COLUMNS
            yield MapRow(first, min(first + COLUMNS, self.counts.total) - 1)
        else:
            first = self.counts.total
        if free_from is not None:
            yield _free_row(free_from, first - 1)
        if first < self.counts.total:
            yield MapRow(first, self.counts.total - 1, f"+{self.counts.total - first:,} more")

    def segments(self, view: RequestView) -> list[Segment]:
        """The request's table in runs."""
        runs: list[Segment] = []
        for logical, physical in enumerate(view.block_table):
            sharers = len(self._holders.get(physical, ()))
            last = runs[-1] if runs else None
            if last and physical == last.physical + last.length and sharers == last.sharers:
                runs[-1] = Segment(last.logical, last.physical, last.length + 1, sharers)
            else:
                runs.append(Segment(logical, physical, 1, sharers))
        return runs

    def cached_nodes(self) -> list[tuple[NodeView, tuple[int, ...]]]:
        """Nodes with the blocks of theirs that no running request holds, in the order in which eviction takes them."""
        index = TreeIndex(self.snapshot.tree)
        found = [(node, tuple(b for b in node.blocks if b not in self._holders)) for node in self.snapshot.tree]
        # Least recently used first, and of a branch used at once its leaf first.
        return sorted(
            (pair for pair in found if pair[1]),
            key=lambda pair: (pair[0].last_used_step, -index.start_of(pair[0]), pair[0].id),
        )


def ended_view(snapshot: EngineSnapshot, record: RequestRecord) -> RequestView:
    """An ended request as far as the tree still knows its tokens: `num_computed_tokens` counts these."""
    index, size = TreeIndex(snapshot.tree), snapshot.blocks.block_size
    output = next(iter(record.output_token_ids), ())
    path, known = index.path_of_tokens(record.prompt_token_ids + output)
    supply: dict[int, int] = {}
    for node in path:
        first = index.start_of(node) // size
        supply.update(enumerate(node.blocks, first))
    table = tuple(supply[logical] for logical in range(-(-known // size)) if logical in supply)
    return RequestView(
        request_id=record.request_id,
        state="finished",
        num_prompt_tokens=len(record.prompt_token_ids),
        num_computed_tokens=known,
        num_output_tokens=len(output),
        num_cached_tokens=record.num_cached_tokens,
        block_table=table,
        priority=0,
        age_s=0.0,
    )


def request_number(request_id: str, place: int) -> int:
    """The number by which cells name a request, here as in the live map: that of its id, else its place."""
    found = _NUMBERED.match(request_id)
    return int(found[1]) if found else place


def holders_by_block(snapshot: EngineSnapshot) -> dict[int, list[str]]:
    """The requests that name each held block; a swapped request's table names no block of this pool."""
    holders: dict[int, list[str]] = {}
    for view in snapshot.requests:
        for block in view.block_table if view.state != "swapped" else ():
            holders.setdefault(block, []).append(view.request_id)
    return holders


def progress(view: RequestView) -> str:
    """Tokens with their KV in the pool, of all tokens the request has."""
    total = view.num_prompt_tokens + view.num_output_tokens
    words = f"{view.num_computed_tokens:,} of {total:,} token{'' if total == 1 else 's'}"
    return f"{words} still cached" if view.state == "finished" else words


def shared_in(view: RequestView, pool: PoolView) -> int:
    """How many blocks of the request's table other requests hold too."""
    return sum(run.length for run in pool.segments(view) if run.sharers > 1)


def _free_row(first: int, last: int) -> MapRow:
    return MapRow(first, last, f"{first}{DASH}{last}: {last - first + 1:,} free")
