"""Who is served first: the order of admission, and what a running sequence counts against another. Imports no torch.

A policy orders who waits and ranks who runs; what a step holds and which blocks it takes is the scheduler's. Under
none of them anybody waits for ever: of those who have waited `ageing` steps the first to come is due. It goes before
all others, and ranks above them once it runs, so that it is not preempted for them. Then a pause passes before the next
one is due: a long queue that gets old does not take the policy's place.
"""

from __future__ import annotations

from collections.abc import Iterable

from .radix_tree import RadixTree
from .sequence import Sequence

AGEING_STEPS = 512
AGED = 2**31  # above every priority
WINDOW = 1024  # how many waiting sequences a step matches against the tree,
MOST_COMPARED = 2**18  # and about how many tokens of them: a millisecond


class Policy:
    """First come, first served within a priority; higher priorities first. A preempted sequence keeps its place.

    The other policies build on this one. `displaces`: who waits may take the place of a running one of lower rank.
    Engine thread only.
    """

    displaces = False
    PAUSES = 16  # in the time in which one ages, so many may become due

    def __init__(self, ageing: int = AGEING_STEPS) -> None:
        """Who has waited `ageing` steps, all its waits together, may be due."""
        self.ageing = ageing
        self.pause = max(1, ageing // self.PAUSES)
        self._due = -1  # the id of who is
        self._quiet_until = 0

    @staticmethod
    def key(seq: Sequence) -> tuple[int, ...]:
        """The order of the queue, smallest first."""
        return (-seq.priority, seq.seq_id)

    def candidates(self, waiting: list[Sequence], tree: RadixTree, step: int, left: int) -> Iterable[Sequence]:
        """Who may be admitted after `step` while `left` tokens of its budget are left, best first.

        `waiting` is in the order of `key`. It shrinks while the result is read.
        """
        first, others = self.due_first(waiting, step)
        return first + others

    def due(self, seq: Sequence) -> bool:
        """Whether `seq` goes first now because it has waited long enough."""
        return seq.seq_id == self._due

    def rank(self, seq: Sequence) -> int:
        """What `seq` counts once it runs: the lowest is preempted first, the highest computes its prompt first."""
        return AGED if self.due(seq) else seq.priority

    def outranked(self, seq: Sequence, running: Iterable[Sequence]) -> list[Sequence]:
        """The running sequences whose place `seq` may take, first the one that goes first."""
        return []

    def due_first(self, waiting: list[Sequence], step: int) -> tuple[list[Sequence], list[Sequence]]:
        """Who is due after `step`, at most one, and the others as given."""
        old: list[Sequence] = []
        if step >= self._quiet_until:
            old = [seq for seq in waiting if seq.waited + step - seq.queued_step >= self.ageing]
        first = min(old, key=lambda seq: seq.seq_id, default=None)
        self._due = -1 if first is None else first.seq_id
        return ([], waiting[:]) if first is None else ([first], [seq for seq in waiting if seq is not first])

    # ---- what happens; tenants are counted by `fairness` alone

    def arrived(self, seq: Sequence) -> None:
        """`seq` is about to be queued for the first time."""

    def put_back(self, seq: Sequence) -> None:
        """`seq` ran and waits again."""

    def admitted(self, seq: Sequence, step: int) -> None:
        """`seq` runs from now on, after `step`; its admission is noted."""
        if self.due(seq):
            self._due, self._quiet_until = -1, step + self.pause

    def generated(self, seq: Sequence) -> None:
        """A token of `seq` was sampled."""

    def left(self, seq: Sequence) -> None:
        """`seq` is about to end, in the state that it has."""

    def restarted(self, waiting: Iterable[Sequence]) -> None:
        """All that is live waits again."""


class PriorityPolicy(Policy):
    """Higher priorities first; they take the places of running sequences of lower ones."""

    displaces = True
    PAUSES = 1

    def outranked(self, seq: Sequence, running: Iterable[Sequence]) -> list[Sequence]:
        lower = [each for each in running if each.rank < seq.priority]
        return sorted(lower, key=lambda each: (each.rank, -each.admitted))


class LongestPrefixPolicy(Policy):
    """Longest cached prefix first, within a priority. The idea and the name "lpm" are SGLang's.

    The tree is read, not changed, by that. Behind the first of a long queue (`WINDOW`, `MOST_COMPARED`) the order is
    that of the queue, so that the work of a step has a bound. `benchmarks/scheduling` shows what that costs.
    """

    def candidates(self, waiting: list[Sequence], tree: RadixTree, step: int, left: int) -> Iterable[Sequence]:
        first, others = self.due_first(waiting, step)
        yield from first
        if not left:  # nobody can start: the order does not matter
            yield from others
            return
        known: dict[Sequence, int] = {}
        compared = 0
        for seq in others[:WINDOW]:
            known[seq] = tree.find(seq.token_ids, seq.namespace)[1] if seq.read_cache else 0
            compared += known[seq]
            if compared > MOST_COMPARED:
                break
        yield from sorted(known, key=lambda seq: (-seq.priority, -known[seq], seq.seq_id))
        yield from others[len(known) :]
