"""The rules of requests and of what is told about them, checked by brute force. Imports no torch.

`invariants` checks the books below: blocks, tree and queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .invariants import violations
from .view import copy_of

if TYPE_CHECKING:
    from .engine import LLMEngine


def all_violations(engine: LLMEngine) -> list[str]:
    """What is wrong with all the books; those that a check stumbles over are wrong, too. Engine thread."""
    found: list[str] = []

    def look() -> Iterator[str]:
        yield from violations(engine.scheduler)

    for each in (look(), engine_violations(engine)):
        try:
            found.extend(each)  # what it yields before it stumbles is kept
        except Exception as error:
            found.append(f"they cannot be read to the end ({error!r})")
    return found


def engine_violations(engine: LLMEngine) -> Iterator[str]:
    """What is wrong, in words. Engine thread, with all that was left for later done (`_catch_up`)."""
    yield from _check_requests(engine)
    yield from _check_door(engine)
    yield from _check_snapshot(engine)


def _check_requests(engine: LLMEngine) -> Iterator[str]:
    """Each live request is known once, its terminal event is to come, and no token of it was lost or told twice."""
    scheduler = engine.scheduler
    if set(engine._by_sequence) != {*scheduler.waiting, *scheduler.running}:
        yield "the engine and the scheduler know different sequences"
    live = {choice.seq for request in engine.requests.values() for choice in request.live_choices}
    if set(engine._by_sequence) != live:
        yield "the engine serves other sequences than its requests have"
    for name, request in engine.requests.items():
        if name != request.request_id:
            yield f"{request.request_id} is filed as {name}"
        if not request.live_choices:
            yield f"{name} has ended and was not answered"
        if request.channel.ended:
            yield f"{name} was answered before it ended"
        for choice in request.live_choices:
            if choice.delivered != choice.seq.num_output_tokens:
                yield f"{choice.seq.label} has {choice.seq.num_output_tokens} tokens, {choice.delivered} were delivered"


def _check_door(engine: LLMEngine) -> Iterator[str]:
    """Requests that were seen have left the door, or they wait for the first time."""
    door = engine._door
    fresh = sum(request.scheduled is None for request in engine.requests.values())
    if door.seen - door.left != fresh:
        yield f"{door.seen - door.left} requests are counted as new, {fresh} are"


def _check_snapshot(engine: LLMEngine) -> Iterator[str]:
    """Totals as the views show them are those of what lives."""
    now, scheduler = copy_of(engine), engine.scheduler
    blocks = now.blocks
    if blocks.free + blocks.held + blocks.cached != blocks.total or min(blocks.free, blocks.held, blocks.cached) < 0:
        yield f"the snapshot counts {blocks.free} + {blocks.held} + {blocks.cached} of {blocks.total} blocks"
    if engine.state != "asleep" and (blocks.total, blocks.free) != (scheduler.pool.total, scheduler.pool.num_free):
        yield "the snapshot shows another pool"
    queue = now.queue
    shown = queue.waiting + queue.prefill + queue.decode + queue.preempted + queue.swapped
    live = [seq.label for seq in [*scheduler.running, *scheduler.waiting]]
    if shown != len(live) or sorted(view.request_id for view in now.requests) != sorted(live):
        yield f"the snapshot shows {shown} sequences, {len(live)} live"
    if engine.state != "asleep" and sum(len(node.blocks) for node in now.tree) > blocks.cached + blocks.held:
        yield "the snapshot's tree owns more blocks than are cached or held"
