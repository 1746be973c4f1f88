"""The turn of a sequence whose tokens may be read from elsewhere, such as the prefix store. Imports no torch.

Nothing is read before a sequence would be admitted: what is read for it then has room, and is not gone before it runs.
While it is read, others may pass if they leave its slot and its blocks to it. Where there is no room for all of its
prompt it goes on as if there were nothing to read, once its patience is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .scheduler import Scheduler
    from .sequence import Sequence


class Source(Protocol):
    """Where tokens of a waiting sequence may come from. Engine thread; nothing here waits."""

    def wanted(self) -> bool:
        """Whether it is worth waiting for. Who hears no does not ask again."""
        ...

    @property
    def patient(self) -> bool:
        """Whether the sequence may wait a little for room."""
        ...

    def begin(self) -> None:
        """Have it read, and `resume` the sequence in the end, come what may."""
        ...


def goes_on(scheduler: Scheduler, seq: Sequence, kept: int, has_slot: bool) -> bool:
    """Whether the turn of `seq` is used, be it that its tokens are read now; False: it waits for room.

    `kept` blocks are for others. Who can take the place of others does not wait for them.
    """
    source, policy = seq.source, scheduler.policy
    if source is None or (not has_slot and not policy.outranked(seq, scheduler.running)):
        return True
    if not source.wanted():
        seq.source = None
        return True
    need = _needed(scheduler, seq)
    if need + kept + _promised(scheduler) > scheduler.pool.num_available:
        return policy.displaces or not source.patient
    seq.source, seq.reading = None, max(1, need)
    source.begin()
    return True


def resume(scheduler: Scheduler, seq: Sequence, source: Source | None = None) -> None:
    """What was read for `seq` has come or not; `source` may have something else."""
    seq.reading, seq.source = 0, source
    scheduler.held_up = False


def _promised(scheduler: Scheduler) -> int:
    """How many blocks those that run still take for their prompts, and the watermark."""
    pool = scheduler.pool
    grow = sum(max(0, pool.num_blocks(seq.num_tokens) - len(seq.block_table)) for seq in scheduler.running)
    return grow + (scheduler.watermark if scheduler.running else 0)


def _needed(scheduler: Scheduler, seq: Sequence) -> int:
    """How many of the blocks that are free or cached all of `seq` takes."""
    pool, tree = scheduler.pool, scheduler.tree
    node, known = tree.find(seq.token_ids, seq.namespace)
    path = [] if node is None else [block for part in tree.path(node) for block in part.blocks]
    held = sum(pool.ref_count[block] > 0 for block in path[: known // pool.block_size])
    return pool.num_blocks(seq.num_tokens) - held
