"""Makes an EngineSnapshot: numbers and ids are copied on the engine thread, texts are decoded on the caller's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .errors import EngineDeadError
from .increment import Increment, facts_now, live_state
from .namespaces import shown
from .radix_tree import Node
from .scheduler import Scheduler
from .sequence import Sequence
from .snapshot import (
    BlockCounts,
    Counters,
    EngineSnapshot,
    ModelInfo,
    NodeView,
    QueueCounts,
    RequestView,
)
from .states.kept import KeptState
from .states.restore import StateRestore
from .states.seen import views_of
from .tape import Frame, Tape

if TYPE_CHECKING:
    from .engine import LLMEngine


def take_snapshot(engine: LLMEngine, decode: Callable[[list[int]], str]) -> EngineSnapshot:
    """A consistent view of a live engine between two steps, or the last counters of a dead one."""
    try:
        raw, kept = engine.call(lambda: (copy_of(engine), _kept(engine.scheduler)))
    except EngineDeadError:
        return _empty(engine)
    tree = tuple(replace(node, text=decode(list(node.token_ids))) for node in raw.tree)
    states = tuple(replace(state, text=decode(list(state.token_ids))) for state in views_of(kept))
    return replace(raw, tree=tree, states=states)


def take_tape(engine: LLMEngine) -> Tape:
    """The recorder's tape between two steps, or what a dead engine had recorded."""
    try:
        tape = engine.call(engine.recorder.tape)
    except EngineDeadError:
        tape = engine.recorder.tape()
    return tape.renamed(shown)


def take_increment(engine: LLMEngine, step: int) -> Increment:
    """What happened after `step`, without waiting for the engine thread."""
    base, records, changes = engine.recorder.since(step)
    tape = Tape(base or Frame(), changes).renamed(shown)
    return Increment(
        state=engine.state,
        step=engine.scheduler.step,
        model=model_now(engine),
        block_size=engine.scheduler.pool.block_size,
        num_blocks=engine.scheduler.pool.total,
        base=None if base is None else tape.base,
        records=records,
        changes=tape.steps,
        requests=tuple(facts for request in list(engine.requests.values()) for facts in facts_now(request)),
    )


def model_now(engine: LLMEngine) -> ModelInfo:
    """What is known about the model, as it is served now. Any thread."""
    return engine.info if engine.reason is None else replace(engine.info, reason=engine.reason())


def copy_of(engine: LLMEngine) -> EngineSnapshot:
    """The snapshot without texts and kept states. Engine thread, between two steps."""
    scheduler = engine.scheduler
    return EngineSnapshot(
        state=engine.state,
        step=scheduler.step,
        model=model_now(engine),
        blocks=_blocks(engine),
        queue=_queue(scheduler),
        requests=tuple(_request(engine, seq) for seq in [*scheduler.running, *scheduler.waiting]),
        tree=_tree(scheduler),
        steps=engine.recorder.steps(),
        counters=_counters(engine),
    )


def _kept(scheduler: Scheduler) -> list[KeptState]:
    """What a model of tier "state" keeps; of requests that have just ended, too."""
    if not isinstance(scheduler.host, StateRestore):
        return []
    scheduler.host.kept.settle()
    return scheduler.host.kept.entries()


def _blocks(engine: LLMEngine) -> BlockCounts:
    """The counts of the pool; asleep it has given its memory back, and there is no block."""
    pool = engine.scheduler.pool
    if engine.state == "asleep":
        return BlockCounts(pool.block_size, 0, 0, 0, 0)
    return BlockCounts(pool.block_size, pool.total, pool.num_free, pool.num_held, pool.num_cached)


def _empty(engine: LLMEngine) -> EngineSnapshot:
    blocks = BlockCounts(engine.scheduler.pool.block_size, 0, 0, 0, 0)
    root = NodeView(0, None, 0, (), "", (), 0, 0, "", ())
    steps = engine.recorder.steps()
    return EngineSnapshot(
        engine.state,
        engine.scheduler.step,
        model_now(engine),
        blocks,
        QueueCounts(),
        (),
        (root,),
        steps,
        _counters(engine),
    )


def _counters(engine: LLMEngine) -> Counters:
    totals = engine.totals
    return Counters(
        requests=dict(totals.requests),
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        computed_tokens=totals.computed_tokens,
        generated_tokens=totals.generated_tokens,
        preemptions=engine.scheduler.num_preemptions,
        evictions=totals.evictions,
        copies=totals.copies,
        breaches=totals.breaches,
    )


def _queue(scheduler: Scheduler) -> QueueCounts:
    states = [live_state(seq) for seq in [*scheduler.running, *scheduler.waiting]]
    return QueueCounts(
        waiting=states.count("waiting"),
        prefill=states.count("prefill"),
        decode=states.count("decode"),
        preempted=states.count("preempted"),
        swapped=states.count("swapped"),
    )


def _request(engine: LLMEngine, seq: Sequence) -> RequestView:
    return RequestView(
        request_id=seq.label,
        state=live_state(seq),
        num_prompt_tokens=seq.num_prompt_tokens,
        num_computed_tokens=seq.computed,
        num_output_tokens=seq.num_output_tokens,
        num_cached_tokens=seq.num_cached_tokens or 0,
        block_table=tuple(seq.block_table),
        priority=seq.priority,
        age_s=time.monotonic() - engine.requests[seq.request_id].submitted,
    )


@dataclass(slots=True)
class _Holders:
    """Which running sequences pass through each node: those whose deepest tree block lies at or below it."""

    by_node: dict[int, list[str]]

    @classmethod
    def of(cls, scheduler: Scheduler) -> _Holders:
        by_node: dict[int, list[str]] = {}
        for seq in scheduler.running:
            owners = (scheduler.pool.owner[block] for block in reversed(seq.block_table))
            deepest = next((owner for owner in owners if isinstance(owner, Node)), None)
            for node in scheduler.tree.path(deepest) if deepest else ():
                by_node.setdefault(node.id, []).append(seq.label)
        return cls(by_node)


def _tree(scheduler: Scheduler) -> tuple[NodeView, ...]:
    holders = _Holders.of(scheduler).by_node
    root = scheduler.tree.root
    views = []
    for node in scheduler.tree.nodes():
        parent = node.parent.id if node.parent is not None else None if node is root else root.id
        ids = tuple(holders.get(node.id, ()))
        views.append(
            NodeView(
                id=node.id,
                parent=parent,
                num_tokens=len(node.token_ids),
                token_ids=tuple(node.token_ids),
                text="",
                blocks=tuple(node.blocks),
                ref_count=len(ids),
                last_used_step=node.used_step,
                namespace=shown(node.namespace),
                request_ids=ids,
            )
        )
    return tuple(views)
