"""What one step does: made by the scheduler, carried out by the runner. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from .block_pool import BlockPool
from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """`num_tokens` tokens of `seq` from position `start`; their context ends at `start + num_tokens`.

    Positions below `first_write` keep the KV they have (slot -1). `samples` says that the last of them is the newest
    token, so that its logits give the next one. `guessed_table` is the block table that the sequence is about to have,
    where a step was planned before its turn.
    """

    seq: Sequence
    start: int
    num_tokens: int
    first_write: int
    kind: Literal["prefill", "decode"]
    samples: bool
    guessed_table: list[int] | None = None

    @classmethod
    def of(
        cls, seq: Sequence, start: int, count: int, num_tokens: int, table: list[int] | None = None
    ) -> ScheduledSequence:
        """`count` tokens of `seq` from position `start`, when it has `num_tokens` tokens."""
        return cls(
            seq=seq,
            start=start,
            num_tokens=count,
            first_write=max(start, seq.valid),
            kind="prefill" if start < seq.prefill_end else "decode",
            samples=start + count == num_tokens,
            guessed_table=table,
        )

    @property
    def table(self) -> list[int]:
        """The block table to run with."""
        return self.seq.block_table if self.guessed_table is None else self.guessed_table

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens


def decodes_first(entries: Iterable[ScheduledSequence]) -> list[ScheduledSequence]:
    """The order of a batch; within both kinds as given."""
    return sorted(entries, key=lambda entry: entry.kind != "decode")


@dataclass(slots=True)
class StepPlan:
    """Decodes first, then prefill chunks, all in one forward. `copies` are (source, destination) blocks, run before it.

    `released` are the ids of sequences that lost their KV or state since the last plan (finished or preempted).
    `inputs` is what the runner made of it ahead of time.
    """

    step: int
    batch: list[ScheduledSequence] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    inputs: object = None

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.batch)

    @property
    def sampling(self) -> list[ScheduledSequence]:
        """The entries that yield a token, in batch order."""
        return [entry for entry in self.batch if entry.samples]


@dataclass(frozen=True, slots=True)
class Guess:
    """A step that was planned while the one before it ran, made by `look_ahead`.

    `order` are its entries as they take their blocks one by one; it rests on those of `pool` after `moves` moves.
    """

    plan: StepPlan
    order: list[ScheduledSequence]
    pool: BlockPool
    moves: int
