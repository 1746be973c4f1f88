"""The next step, planned while the one before it runs. Imports no torch.

`look_ahead` does what `Scheduler.schedule` will do, on the state that the running step will leave if each of its rows
gives a token and nobody ends or comes. It changes nothing: the blocks are those that the pool will give out next. So a
guess that turns out wrong is dropped and costs the time it took. One that `holds` becomes the plan by `Scheduler.take`.

There is no guess where more than that decides: somebody may be admitted, a sequence reaches its last token, or a block
would have to be evicted.
"""

from __future__ import annotations

from .plan import Guess, ScheduledSequence, StepPlan
from .scheduler import Scheduler
from .sequence import Sequence


def look_ahead(scheduler: Scheduler, plan: StepPlan) -> Guess | None:
    """The step after `plan`, which runs; None where it cannot be known yet."""
    ends = any(e.samples and e.seq.num_output_tokens + 1 >= e.seq.max_tokens for e in plan.batch)
    if ends or scheduler.admits:
        return None
    order = _entries(scheduler, plan)
    if not order:
        return None
    ahead = scheduler.plan_of(scheduler.step + 1, order, copies=[])
    return Guess(ahead, order, scheduler.pool, scheduler.pool.moves)


def holds(scheduler: Scheduler, guess: Guess) -> bool:
    """Whether `schedule` would give the plan of `guess` now.

    What exchanges a block in a table moves a block; who does not run any more has no computed tokens.
    """
    pool = scheduler.pool
    if guess.pool is not pool or guess.moves != pool.moves or scheduler.admits:
        return False
    return all(e.start == e.seq.computed and e.samples == (e.stop == e.seq.num_tokens) for e in guess.order)


def decodes_ahead(scheduler: Scheduler) -> int:
    """How many sequences the next step decodes; 0 where it has something else to do as well."""
    pure = not scheduler.admits and all(seq.remaining == 1 for seq in scheduler.running)
    return len(scheduler.running) if pure else 0


def _entries(scheduler: Scheduler, plan: StepPlan) -> list[ScheduledSequence]:
    """Who runs next, in the order of `schedule`; nobody where the free blocks do not last."""
    pool, left, counts = scheduler.pool, scheduler.next_budget, list[int]()
    after = _after(scheduler, plan)
    for _, computed, length in after:
        counts.append(scheduler.limits.share(length - computed, left, counts))
        left -= counts[-1]
    chosen = [(*one, count) for one, count in zip(after, counts, strict=True) if count]
    needs = [pool.num_blocks(start + count) - len(seq.block_table) for seq, start, _, count in chosen]
    if sum(needs) > pool.num_free:
        return []
    blocks = iter(pool.upcoming(sum(needs)))
    return [
        ScheduledSequence.of(seq, start, count, length, seq.block_table + [next(blocks) for _ in range(need)])
        for (seq, start, length, count), need in zip(chosen, needs, strict=True)
    ]


def _after(scheduler: Scheduler, plan: StepPlan) -> list[tuple[Sequence, int, int]]:
    """(sequence, computed tokens, tokens) of all that run, once `plan` has succeeded; first who is planned first."""
    now = {entry.seq: entry for entry in plan.batch}
    after = []
    for seq in scheduler.running:
        entry = now.get(seq)
        if entry is None:
            after.append((seq, seq.computed, seq.num_tokens))
        else:
            after.append((seq, entry.stop, seq.num_tokens + entry.samples))
    return sorted(after, key=lambda one: (one[2] - one[1] > 1, -one[0].rank, one[0].admitted))
