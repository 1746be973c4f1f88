"""What one step does: made by the scheduler, carried out by the runner. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """`num_tokens` tokens of `seq` from position `start`; their context ends at `start + num_tokens`.

    Positions below `first_write` keep the KV they have (slot -1). `samples` says that the last of them is the newest
    token, so that its logits give the next one.
    """

    seq: Sequence
    start: int
    num_tokens: int
    first_write: int
    kind: Literal["prefill", "decode"]
    samples: bool

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens


@dataclass(slots=True)
class StepPlan:
    """Decodes first, then prefill chunks, all in one forward. `copies` are (source, destination) blocks, run before it.

    `released` are the ids of sequences that lost their KV or state since the last plan (finished or preempted).
    """

    step: int
    batch: list[ScheduledSequence] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.batch)

    @property
    def sampling(self) -> list[ScheduledSequence]:
        """The entries that yield a token, in batch order."""
        return [entry for entry in self.batch if entry.samples]
