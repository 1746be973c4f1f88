"""Which decodes of a step begin with the same blocks, so that one kernel can read those once. Imports no torch.

Sequences below one node of the radix tree name the same blocks up to there. What is compared are the block tables
themselves, so that nothing has to be kept in step with the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_LEVELS = 8
"""Prefixes inside of prefixes that are looked at; a chain of more is cut there."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Groups of decodes: `order` names them by their position in the step, members beside each other.

    Group i is starts[i] to starts[i + 1] of `order`. Its members' first `prefixes[i]` tokens lie in the same blocks,
    all of them full and before the token that is computed. The last group may be of those that share nothing (0).
    """

    order: tuple[int, ...]
    starts: tuple[int, ...]
    prefixes: tuple[int, ...]

    @property
    def groups(self) -> list[tuple[int, int]]:
        """(sequences, shared tokens) of each."""
        sizes = [stop - start for start, stop in pairwise(self.starts)]
        return list(zip(sizes, self.prefixes, strict=True))

    @property
    def largest(self) -> int:
        """Sequences of the largest group."""
        return max(sequences for sequences, _ in self.groups)

    @property
    def shared_lens(self) -> list[int]:
        """Shared tokens of each sequence, in the order of `order`."""
        return [tokens for sequences, tokens in self.groups for _ in range(sequences)]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows whose tables begin with the same `blocks` blocks."""

    rows: list[int]
    blocks: int

    @property
    def saved(self) -> int:
        """Reads of a block that fall away when the prefix is read once."""
        return (len(self.rows) - 1) * self.blocks


def share(tables: Sequence[list[int]], contexts: Sequence[int], block_size: int) -> Sharing | None:
    """The groups among decodes with these block tables and contexts, the computed token included; None without any.

    Of prefixes inside of each other the level that saves most reads is taken. Takes time in proportion to the blocks.
    """
    limits = [(context - 1) // block_size for context in contexts]
    found = [group for rows in _split(tables, limits, range(len(tables)), 0) for group in _best(tables, limits, rows)]
    if not found:
        return None
    order = [row for group in found for row in group.rows]
    starts = [0]
    for group in found:
        starts.append(starts[-1] + len(group.rows))
    prefixes = [group.blocks * block_size for group in found]
    alone = sorted(set(range(len(tables))).difference(order))
    if alone:
        starts.append(len(tables))
        prefixes.append(0)
    return Sharing((*order, *alone), tuple(starts), tuple(prefixes))


def each_alone(contexts: Sequence[int], block_size: int) -> Sharing:
    """Every decode as a group of its own, with all full blocks before its token as prefix: to try the kernels out."""
    count = len(contexts)
    prefixes = tuple((context - 1) // block_size * block_size for context in contexts)
    return Sharing(tuple(range(count)), tuple(range(count + 1)), prefixes)


def _best(
    tables: Sequence[list[int]], limits: list[int], rows: list[int], known: int = 1, level: int = 1
) -> list[Group]:
    """The groups among `rows`, which share their first `known` blocks."""
    together = Group(rows, _common(tables, limits, rows, known))
    if level == MOST_LEVELS:
        return [together]
    deeper = [
        group
        for branch in _split(tables, limits, rows, together.blocks)
        for group in _best(tables, limits, branch, together.blocks + 1, level + 1)
    ]
    return deeper if sum(group.saved for group in deeper) > together.saved else [together]


def _split(tables: Sequence[list[int]], limits: list[int], rows: Iterable[int], at: int) -> list[list[int]]:
    """The rows with the same block at place `at`, where it may be shared at all and another row has it too."""
    branches: dict[int, list[int]] = {}
    for row in rows:
        if limits[row] > at:
            block = tables[row][at]
            if block in branches:
                branches[block].append(row)
            else:
                branches[block] = [row]
    return [branch for branch in branches.values() if len(branch) > 1]


def _common(tables: Sequence[list[int]], limits: list[int], rows: list[int], known: int) -> int:
    """How many leading blocks all of `rows` share, when the first `known` are known to be."""
    depth = min([limits[row] for row in rows])
    first = tables[rows[0]]
    head = first[known:depth]
    for row in rows[1:]:
        other = tables[row][known:depth]
        if other != head:  # lists compare at the speed of C; only where a prefix gets shorter it is looked for
            depth = known + _equal(head, other)
            head = first[known:depth]
    return depth


def _equal(head: list[int], other: list[int]) -> int:
    """How many leading items of two lists of one length are equal.

    Found by bisection, since a block that two tables name at one place is nearly always one below which all else is
    equal; what was found is compared, and where that was wrong every item is looked at.
    """
    low, high = 0, len(head)
    while low < high:
        middle = (low + high) // 2
        if head[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    if head[:low] == other[:low]:
        return low
    return next(place for place, pair in enumerate(zip(head, other, strict=True)) if pair[0] != pair[1])
