"""What becomes of blocks and tree while nothing runs: a reset, a sleep, a cancelled request, a restored prefix.

It gets a record of its own, a step with an empty batch. Else views that follow the steps would show the cache as it was
until the next request came. Imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plan import StepPlan
from .snapshot import StepTimes

if TYPE_CHECKING:
    from .engine import LLMEngine


def record_interlude(engine: LLMEngine) -> None:
    """Record what no step will tell. Engine thread, with the step before recorded."""
    scheduler = engine.scheduler
    if not engine.idle or not (scheduler.changes.pending or engine.recorder.misses):
        return
    scheduler.step += 1
    plan = StepPlan(scheduler.step)
    blocks = engine.recorder.step(plan, scheduler.running, scheduler.changes, scheduler.host.pool.num_held)
    engine.recorder.timed(plan.step, StepTimes())
    engine.totals.step(plan, blocks)
