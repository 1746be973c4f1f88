"""A step that failed: who pays for it, and that nothing of it stays in the books. Imports no torch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .errors import DeviceMemoryError, step_error
from .invariants import violations
from .plan import ScheduledSequence, StepPlan
from .sequence import Sequence

if TYPE_CHECKING:
    from .engine import LLMEngine

logger = logging.getLogger("yaie")


def fail_step(engine: LLMEngine, plan: StepPlan | None, error: BaseException) -> None:
    """A failed step fails the requests that were in it and nothing else; one too large for memory is cut instead.

    When planning itself failed, these are the running ones, or else the first that waits: so every failure takes work
    away and none repeats for ever.
    """
    engine._catch_up()
    scheduler = engine.scheduler
    logger.error("step %d failed: %r", scheduler.step, error)
    seqs = [entry.seq for entry in plan.batch] if plan else [*scheduler.running] or scheduler.waiting[:1]
    if plan and isinstance(error, DeviceMemoryError):
        seqs = scheduler.shrink(plan)
    guilty = dict.fromkeys(engine._by_sequence[seq][0] for seq in seqs if seq in engine._by_sequence)
    try:
        scheduler.abort(plan or StepPlan(scheduler.step, [_whole(seq) for seq in scheduler.running]))
        broken = violations(scheduler)
    except Exception as more:
        broken = [repr(more)]
    if broken:
        logger.error("the cache is emptied after a failed step: %s", "; ".join(broken))
        scheduler.rebuild()
    for request in guilty:
        engine._end(request, step_error(error, scheduler.step))


def _whole(seq: Sequence) -> ScheduledSequence:
    return ScheduledSequence(seq, seq.computed, 0, seq.computed, "prefill", samples=False)
