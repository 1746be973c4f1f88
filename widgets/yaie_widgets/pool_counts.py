"""How many blocks are free, cached, held and shared after each step of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

States = Counter[str]


class PoolCounts:
    """Moved along with the steps: a step costs what it changed, not what the pool holds.

    A block that one request holds is "held", one that several hold "shared"; what only the tree holds is "cached".
    """

    def __init__(self, base: Mapping[str, Any]) -> None:
        self.counts: States = Counter()
        self._tables: dict[str, list[int]] = {}
        self._nodes: dict[int, list[int]] = {}
        self._holders: Counter[int] = Counter()
        self._owners: Counter[int] = Counter()
        for label, blocks, _ in base["tables"]:
            self._keep(self._tables, self._holders, label, 0, blocks)
        for node, _, _, _, _, blocks, _ in base["nodes"]:
            self._keep(self._nodes, self._owners, node, 0, blocks)

    def apply(self, step: Mapping[str, Any]) -> None:
        """Go on by one step."""
        for label, kept, blocks, _ in step.get("tables", ()):
            self._keep(self._tables, self._holders, label, kept, blocks)
        for label, _ in step.get("left", ()):
            self._drop(self._tables, self._holders, label)
        for node in list(self._nodes) if step.get("wiped") else ():
            self._drop(self._nodes, self._owners, node)
        for node, _, _, _, _, _, kept, blocks, _ in step.get("nodes", ()):
            self._keep(self._nodes, self._owners, node, kept, blocks)
        for node in step.get("removed", ()):
            self._drop(self._nodes, self._owners, node)

    def _keep(self, lists: dict[Any, list[int]], users: Counter[int], key: Any, kept: int, blocks: list[int]) -> None:
        """The list of `key` keeps its first `kept` blocks; `blocks` follow."""
        before = lists.setdefault(key, [])
        self._use(users, before[kept:], -1)
        before[kept:] = blocks
        self._use(users, blocks, 1)

    def _drop(self, lists: dict[Any, list[int]], users: Counter[int], key: Any) -> None:
        self._use(users, lists.pop(key, ()), -1)

    def _use(self, users: Counter[int], blocks: Iterable[int], by: int) -> None:
        for block in blocks:
            self.counts[self._state(block)] -= 1
            users[block] += by
            self.counts[self._state(block)] += 1

    def _state(self, block: int) -> str:
        holders = self._holders[block]
        if holders:
            return "held" if holders == 1 else "shared"
        return "cached" if self._owners[block] else "free"
