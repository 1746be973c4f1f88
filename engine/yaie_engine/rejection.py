"""Requests that a step failed although it succeeded for others: ended before anything of it is published."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .errors import AnomalyError, YaieError
from .radix_tree import RadixTree
from .request import Request
from .sequence import Sequence

if TYPE_CHECKING:
    from .engine import LLMEngine


def reject(engine: LLMEngine, failed: list[tuple[Request, YaieError]]) -> None:
    """End these requests, and forget what they published before as far as nobody else has it: it may be damaged."""
    for request, reason in {id(request): (request, reason) for request, reason in failed}.values():
        seqs = [choice.seq for choice in request.live_choices]
        engine._end(request, reason)
        for seq in seqs:
            forget = _forget if isinstance(reason, AnomalyError) and reason.in_cache else _discard
            engine._try(partial(forget, engine.scheduler.tree, seq))


def _discard(tree: RadixTree, seq: Sequence) -> None:
    tree.discard(seq.token_ids, seq.namespace)


def _forget(tree: RadixTree, seq: Sequence) -> None:
    """Discard what the sequence read from the tree, which is damaged, with all that goes on from there."""
    first = tree.match(seq.token_ids, seq.namespace)
    stack = [first] if first.parent is not None else []  # the root: it read nothing of the tree, and others stay
    while stack:
        node = stack.pop()
        stack += node.children.values()
        if not node.children and node.parent is not None:
            tree.discard([token_id for each in tree.path(node) for token_id in each.token_ids], node.namespace)
