"""Follows the steps of a recording that nobody vouches for, and refuses what does not follow from the step before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .schema import Check, RecordingError, fields, flag, listed, number, one_of, row, text, whole

_DEEPEST = 2000
_PASSED = 5 * 10**7
"""Nodes that are looked at on the ways to their roots, in all: it bounds the time that a file can take."""
_LEFT = ("waiting", "swapped", "running", "finished", "cancelled", "failed")
_ALWAYS = ("step", "at", "prefill", "decode", "batch", "ms")


class Walk:
    """Sizes of tables and nodes after each step: enough to know what a later step may keep of them."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._block = whole(0, num_blocks - 1)
        self._token = whole(0, 10**9 - 1)
        self._checks = _step_checks(self._block, whole(-(2**31), num_blocks - 1), self._token)
        self._step = self._passed = 0
        self._tables: dict[str, int] = {}
        self._nodes: dict[int, tuple[int, int, int]] = {}  # tokens, blocks, parent

    def base(self, where: str, value: Any) -> None:
        """The frame before the first step."""
        node, number = whole(-(2**31)), whole()
        tokens, blocks = listed(self._token), listed(self._block)
        checks: dict[str, Check] = {
            "step": number,
            "nodes": listed(row(node, node, text, number, tokens, blocks, number)),
            "tables": listed(row(text, blocks, number)),
            "waiting": listed(text),
        }
        fields(where, value, checks)
        self._step = value["step"]
        for i, parent, _, _, held, owned, _ in value["nodes"]:
            self._nodes[i] = (len(held), len(owned), parent)
        for place, (label, held, computed) in enumerate(value["tables"]):
            self._table(f"{where}.tables[{place}]", label, len(held), computed)
        self._no_loops(where, self._nodes)

    def step(self, where: str, value: Any) -> None:
        """One more step."""
        fields(where, value, self._checks, self._checks.keys() - set(_ALWAYS))
        if value["step"] <= self._step:
            raise RecordingError(f"{where}.step is {value['step']}, and the one before it is {self._step}")
        self._step = value["step"]
        for place, (label, kept, blocks, computed) in enumerate(value.get("tables", ())):
            at = f"{where}.tables[{place}]"
            self._keeps(at, kept, self._tables.get(label, 0), "blocks")
            self._table(at, label, kept + len(blocks), computed)
        for label, _ in value.get("left", ()):
            self._tables.pop(label, None)
        self._follow_tree(where, value)

    def _table(self, where: str, label: str, blocks: int, computed: int) -> None:
        if computed > blocks * self._block_size:
            raise RecordingError(f"{where} has {computed} tokens in {blocks} blocks of {self._block_size}")
        self._tables[label] = blocks

    def _follow_tree(self, where: str, value: dict[str, Any]) -> None:
        if value.get("wiped"):
            self._nodes.clear()
        moved: list[int] = []
        for place, change in enumerate(value.get("nodes", ())):
            i, parent, _, _, tokens_kept, tokens, blocks_kept, blocks, _ = change
            at, known = f"{where}.nodes[{place}]", self._nodes.get(i, (0, 0, 0))
            self._keeps(at, tokens_kept, known[0], "tokens")
            self._keeps(at, blocks_kept, known[1], "blocks")
            if i not in self._nodes or parent != known[2]:
                moved.append(i)
            self._nodes[i] = (tokens_kept + len(tokens), blocks_kept + len(blocks), parent)
        for gone in value.get("removed", ()):
            self._nodes.pop(gone, None)
        self._no_loops(where, moved)

    def _keeps(self, where: str, kept: int, had: int, noun: str) -> None:
        if kept > had:
            raise RecordingError(f"{where} keeps {kept} {noun} of {had}")

    def _no_loops(self, where: str, starts: Iterable[int]) -> None:
        """Each of these nodes leads to a root. No node is passed twice."""
        depths: dict[int, int] = {}
        for start in starts:
            path: list[int] = []
            at = start
            while at in self._nodes and at not in depths and len(path) <= _DEEPEST:
                path.append(at)
                at = self._nodes[at][2]
            depth = depths.get(at, 0)
            if depth + len(path) > _DEEPEST:
                raise RecordingError(f"{where}: node {start} is below itself, or more than {_DEEPEST} nodes deep")
            depths |= {node: depth + up for up, node in enumerate(reversed(path), 1)}
            self._passed += len(path)
        if self._passed > _PASSED:
            raise RecordingError(f"{where}: more nodes move below others than any engine moves")


def _step_checks(block: Check, swapped: Check, token: Check) -> dict[str, Check]:
    """What each key of a step must be; `block` is what a block id must be, `swapped` one that may be the host's."""
    node, amount = whole(-(2**31)), whole()
    blocks, nodes, labels = listed(block), listed(node), listed(text)
    pairs = listed(row(block, block))
    kind = one_of("prefill", "decode")
    change = row(node, node, text, amount, amount, listed(token), amount, blocks, amount)
    return {
        "step": amount,
        "at": number,
        "prefill": amount,
        "decode": amount,
        "batch": listed(row(text, kind, amount)),
        "ms": row(number, number, number, number),
        **dict.fromkeys(("allocated", "freed", "evicted"), blocks),
        "copied": pairs,
        "swapped": listed(row(swapped, swapped)),
        **dict.fromkeys(("added", "extended", "split", "removed_nodes", "removed"), nodes),
        **dict.fromkeys(("preempted", "arrived"), labels),
        "admitted": listed(row(text, amount)),
        "left": listed(row(text, one_of(*_LEFT))),
        "tables": listed(row(text, amount, blocks, amount)),
        "wiped": flag,
        "nodes": listed(change),
        "used": listed(row(node, amount)),
        "host_held": amount,
    }
