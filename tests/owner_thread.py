"""Blocks, tree and scheduler belong to one thread: whoever changes one first. Another one that does is an error."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from yaie_engine.block_pool import BlockPool
from yaie_engine.radix_tree import RadixTree
from yaie_engine.scheduler import Scheduler

CHANGES: dict[type, tuple[str, ...]] = {
    BlockPool: ("allocate", "free"),
    RadixTree: ("match", "publish", "evict", "evict_one", "clear", "discard", "drop_namespace", "queue"),
    Scheduler: (
        "add", "finish", "preempt", "schedule", "take", "complete", "shrink", "abort", "rebuild",
    ),
}  # fmt: skip
KEPT = 64


class OwnerThreads:
    """Who owns which object, and who meddled with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._pools: OrderedDict[int, tuple[BlockPool, int]] = OrderedDict()

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From now on each change is looked at."""
        for owner, names in CHANGES.items():
            for name in names:
                patch.setattr(owner, name, self._checked(getattr(owner, name)))

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(this: Any, *args: Any, **named: Any) -> Any:
            if self._owner(this) != threading.get_ident():
                self.problems.append(
                    f"{type(this).__name__}.{function.__name__} on {threading.current_thread().name}: not its owner"
                )
                raise AssertionError(self.problems[-1])
            return function(this, *args, **named)

        return checked

    def _owner(self, this: Any) -> int:
        """The thread that was the first. A pool has no room for a note; those that are known are kept, and few."""
        if not isinstance(this, BlockPool):
            return int(this.__dict__.setdefault("_owner_thread", threading.get_ident()))
        found = self._pools.get(id(this))
        if found is None:
            found = self._pools[id(this)] = this, threading.get_ident()
            while len(self._pools) > KEPT:
                self._pools.popitem(last=False)
        return found[1]


OWNERS = OwnerThreads()
