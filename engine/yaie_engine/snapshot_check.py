"""Whether a snapshot agrees with itself: what its views rely on. For one that came from elsewhere; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .plain_data import MalformedError

if TYPE_CHECKING:
    from .snapshot import EngineSnapshot

DEEPEST = 2000
"""Nodes on the way from a root to a leaf, and states that go on from each other, at most."""
MOST_BLOCKS = 10**7


def check_snapshot(found: EngineSnapshot) -> None:
    """Raise MalformedError unless counts add up, blocks exist, the tree is a tree and steps follow each other."""
    blocks = found.blocks
    if not 1 <= blocks.block_size <= 4096 or blocks.total > MOST_BLOCKS:
        raise MalformedError(f"has {blocks.total} blocks of {blocks.block_size} tokens, which no pool has", "blocks")
    if blocks.free + blocks.held + blocks.cached != blocks.total:
        raise MalformedError("are not free, held and cached in all", "blocks")
    for place, request in enumerate(found.requests):
        _in_pool(f"requests[{place}].block_table", request.block_table, blocks.total)
    _check_tree(found)
    _check_states(found)
    before = -1
    for place, step in enumerate(found.steps):
        if not before < step.step <= found.step:
            raise MalformedError(f"is {step.step}, after {before}; the newest is {found.step}", f"steps[{place}].step")
        before = step.step
        events = step.blocks
        swapped = [max(block, ~block) for pair in events.swapped for block in pair]
        for ids in (events.allocated, events.freed, events.evicted, *events.copied, swapped):
            _in_pool(f"steps[{place}].blocks", ids, MOST_BLOCKS)  # the pool may have had another size then


def _check_tree(found: EngineSnapshot) -> None:
    """Roots first, and each node after the one above it: so there is no loop."""
    depths: dict[int, int] = {}
    for place, node in enumerate(found.tree):
        where = f"tree[{place}]"
        if node.id in depths:
            raise MalformedError(f"has the id {node.id}, which another node has", where)
        if node.parent is not None and node.parent not in depths:
            raise MalformedError(f"is below node {node.parent}, which is not before it", where)
        depths[node.id] = 0 if node.parent is None else depths[node.parent] + 1
        if depths[node.id] > DEEPEST:
            raise MalformedError(f"is more than {DEEPEST} nodes deep", where)
        if node.num_tokens != len(node.token_ids) or node.ref_count != len(node.request_ids):
            raise MalformedError("does not have as many tokens and requests as it says", where)
        if place and node.parent is None:
            raise MalformedError("is a second root", where)
        if depths[node.id] > 1 and not node.num_tokens:  # at 1 it is the root of a namespace
            raise MalformedError("has no tokens", where)
        _in_pool(f"{where}.blocks", node.blocks, found.blocks.total)
    if 0 not in depths:
        raise MalformedError("has no root", "tree")


def _check_states(found: EngineSnapshot) -> None:
    """Each state goes on from one before it, of the same namespace, by the tokens that it names: at least one."""
    depths: list[int] = []
    for place, state in enumerate(found.states):
        above = None if state.parent is None else found.states[state.parent] if state.parent < place else state
        if above is state:
            raise MalformedError(f"is below state {state.parent}, which is not before it", f"states[{place}]")
        if above is not None and above.namespace != state.namespace:
            raise MalformedError("is below a state of another namespace", f"states[{place}]")
        if not state.token_ids or state.num_tokens != (above.num_tokens if above else 0) + len(state.token_ids):
            raise MalformedError("does not have as many tokens as it says", f"states[{place}]")
        depths.append(1 if state.parent is None else depths[state.parent] + 1)
        if depths[place] > DEEPEST:
            raise MalformedError(f"is more than {DEEPEST} states deep", f"states[{place}]")


def _in_pool(where: str, ids: Iterable[int], total: int) -> None:
    most = max(ids, default=-1)
    if most >= total:
        raise MalformedError(f"holds block {most}, and the pool has {total}", where)
