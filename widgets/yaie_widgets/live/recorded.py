"""A recording read back into the engine's own plain data, at its newest step: what drawings are made of.

A recording keeps how many tokens a request had, not which: the sequences here have that length and nothing in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from yaie_engine.increment import Increment, RequestFacts
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import (
    BatchEntry,
    BlockCounts,
    BlockEvents,
    Counters,
    EngineSnapshot,
    ModelInfo,
    NodeView,
    QueueCounts,
    RequestView,
    StepRecord,
    StepTimes,
    TreeEvents,
)
from yaie_engine.tape import Frame, NodeChange, NodeState, TableChange, TableState, Tape, TapeStep, TreeChange

from .recording import LIVE, MODEL, Json


def record_of(step: Json) -> StepRecord:
    """The record of a step."""
    batch = tuple(BatchEntry(*entry) for entry in step["batch"])
    blocks = BlockEvents(
        allocated=tuple(step.get("allocated", ())),
        freed=tuple(step.get("freed", ())),
        evicted=tuple(step.get("evicted", ())),
        copied=_pairs(step.get("copied", ())),
        swapped=_pairs(step.get("swapped", ())),
    )
    names = ("added", "extended", "split", "removed_nodes")
    tree = TreeEvents(*(tuple(step.get(name, ())) for name in names))
    preempted = tuple(step.get("preempted", ()))
    return StepRecord(
        step["step"], step["prefill"], step["decode"], batch, blocks, tree, preempted, StepTimes(*step["ms"])
    )


def change_of(step: Json) -> TapeStep:
    """What a step changed."""
    nodes = tuple(
        NodeChange(i, parent, space, start, kept, tuple(tokens), blocks_kept, tuple(blocks), used)
        for i, parent, space, start, kept, tokens, blocks_kept, blocks, used in step.get("nodes", ())
    )
    tree = TreeChange(step.get("wiped", False), nodes, tuple(step.get("removed", ())), _pairs(step.get("used", ())))
    tables = tuple(TableChange(label, kept, tuple(blocks), n) for label, kept, blocks, n in step.get("tables", ()))
    admitted, left = _pairs(step.get("admitted", ())), _pairs(step.get("left", ()))
    arrived, host_held = tuple(step.get("arrived", ())), step.get("host_held", 0)
    return TapeStep(step["step"], step["at"], arrived, admitted, left, tables, tree, host_held)


def frame_of(base: Json) -> Frame:
    """The frame before the first step."""
    nodes = {
        i: NodeState(i, parent, space, start, [*tokens], [*blocks], used)
        for i, parent, space, start, tokens, blocks, used in base["nodes"]
    }
    tables = {label: TableState([*blocks], computed) for label, blocks, computed in base["tables"]}
    return Frame(base["step"], nodes, tables, dict.fromkeys(base["waiting"]))


def tape_of(recording: Json) -> Tape:
    """The tape of a recording."""
    return Tape(frame_of(recording["base"]), tuple(change_of(step) for step in recording["steps"]))


def _pairs(given: Iterable[Any]) -> Any:
    return tuple((first, second) for first, second in given)


def history_of(recording: Json) -> list[RequestRecord]:
    """The requests of a recording that have ended, each choice as a request of its own."""
    return [_ended(label, facts) for label, facts in recording["requests"].items() if facts["state"] not in LIVE]


def _ended(label: str, facts: Json) -> RequestRecord:
    queue, total = facts["queue_s"] or 0.0, facts["total_s"] or 0.0
    first = facts["ttft_s"] if facts["ttft_s"] is not None else total
    return RequestRecord(
        request_id=label,
        prompt=facts["text"],
        prompt_token_ids=_unknown(facts["num_prompt_tokens"]),
        output_token_ids=(_unknown(facts["num_output_tokens"]),),
        texts=("",),
        finish_reasons=(facts["finish_reason"] or facts["state"],),
        stop_reasons=(facts["stop_reason"],),
        error=facts["error"],
        num_cached_tokens=facts["num_cached_tokens"] or 0,
        matched=(),
        blocks_shared=(),
        blocks_owned=(),
        copied=None,
        first_step=None,
        last_step=None,
        num_prefill_steps=0,
        num_decode_steps=0,
        num_preemptions=0,
        queue_s=queue,
        prefill_s=max(0.0, first - queue),
        decode_s=max(0.0, total - first),
        total_s=total,
        submitted_at=facts["submitted_at"] or 0.0,
    )


def increment_of(recording: Json, step: int) -> Increment:
    """What happened after a step, as an engine tells it: the requests are those that have not ended."""
    engine, steps = recording["engine"], [each for each in recording["steps"] if each["step"] > step]
    newest = recording["steps"][-1] if recording["steps"] else recording["base"]
    return Increment(
        state=engine["state"],
        step=newest["step"],
        model=ModelInfo(*(engine[name] for name in MODEL)),
        block_size=engine["block_size"],
        num_blocks=engine["num_blocks"],
        base=frame_of(recording["base"]) if step < recording["base"]["step"] else None,
        records=tuple(record_of(each) for each in steps),
        changes=tuple(change_of(each) for each in steps),
        requests=tuple(_facts(label, each) for label, each in recording["requests"].items() if each["state"] in LIVE),
    )


def _facts(label: str, facts: Json) -> RequestFacts:
    names = ("state", "finish_reason", "stop_reason", "error", "num_prompt_tokens", "num_cached_tokens")
    times = ("num_output_tokens", "submitted_at", "queue_s", "ttft_s", "total_s")
    return RequestFacts(label, facts["text"], (), *(facts[name] for name in (*names, *times)))


def _unknown(number: int | None) -> tuple[int, ...]:
    """So many tokens that nobody knows, in no memory: the number is that of a file."""
    return cast("tuple[int, ...]", range(number or 0))


def snapshot_of(recording: Json, tape: Tape) -> EngineSnapshot:
    """The engine after the newest step of a recording."""
    frame = tape.base.copy()
    for change in tape.steps:
        frame.apply(change)
    engine, facts = recording["engine"], recording["requests"]
    held: set[int] = set().union(*(table.blocks for table in frame.tables.values()))
    owned: set[int] = set().union(*(node.blocks for node in frame.nodes.values()))
    total, free = engine["num_blocks"], engine["num_blocks"] - len(held | owned)
    requests = tuple(_live(label, frame, facts.get(label) or {}) for label in [*frame.tables, *frame.waiting])
    states = Counter(request.state for request in requests)
    known = _on_tape(tape)
    over = (each for label, each in facts.items() if label in known and each["state"] not in LIVE)
    ended = Counter(str(each["finish_reason"]) for each in over)
    return EngineSnapshot(
        state="closed",
        step=frame.step,
        model=ModelInfo(*(engine[name] for name in MODEL)),
        blocks=BlockCounts(engine["block_size"], total, free, len(held), len(owned - held)),
        queue=QueueCounts(*(states[name] for name in ("waiting", "prefill", "decode", "preempted", "swapped"))),
        requests=requests,
        tree=_tree(recording, frame),
        steps=tuple(record_of(step) for step in recording["steps"]),
        counters=Counters(dict(ended)),
    )


def _on_tape(tape: Tape) -> set[str]:
    """The labels whose course the tape tells; a request that ended before any step saw it is none of them."""
    arrived = (label for change in tape.steps for label in change.arrived)
    return {*tape.base.tables, *tape.base.waiting, *arrived}


def _live(label: str, frame: Frame, facts: Json) -> RequestView:
    table = frame.tables.get(label)
    state = facts.get("state") if facts.get("state") in LIVE else None
    return RequestView(
        request_id=label,
        state=state or ("decode" if table else "waiting"),
        num_prompt_tokens=facts.get("num_prompt_tokens") or 0,
        num_computed_tokens=table.num_computed if table else 0,
        num_output_tokens=facts.get("num_output_tokens") or 0,
        num_cached_tokens=facts.get("num_cached_tokens") or 0,
        block_table=tuple(table.blocks) if table else (),
        priority=0,
        age_s=0.0,
    )


def _tree(recording: Json, frame: Frame) -> tuple[NodeView, ...]:
    """The nodes, parents first, below the root of their namespace."""
    children: dict[int, list[NodeState]] = {}
    for node in frame.nodes.values():
        children.setdefault(node.parent, []).append(node)
    holders = _holders(frame)
    views = [NodeView(0, None, 0, (), "", (), 0, 0, "", ())]
    tops = [(parent, below) for parent, below in children.items() if parent not in frame.nodes]
    for parent, below in tops:
        space = below[0].namespace
        if space:
            views.append(NodeView(parent, 0, 0, (), "", (), 0, 0, space, ()))
        stack = [(node, parent if space else 0) for node in reversed(below)]
        while stack:
            node, above = stack.pop()
            ids = tuple(holders.get(node.id, ()))
            text = _text(recording["vocab"], node.token_ids)
            tokens, blocks = tuple(node.token_ids), tuple(node.blocks)
            views.append(
                NodeView(
                    node.id, above, len(tokens), tokens, text, blocks, len(ids), node.used_step, node.namespace, ids
                )
            )
            stack += [(child, node.id) for child in reversed(children.get(node.id, []))]
    return tuple(views)


def _holders(frame: Frame) -> dict[int, list[str]]:
    """Which running requests pass through each node: those whose deepest tree block lies at or below it."""
    owner = {block: node for node in frame.nodes.values() for block in node.blocks}
    found: dict[int, list[str]] = {}
    for label, table in frame.tables.items():
        node = next((owner[block] for block in reversed(table.blocks) if block in owner), None)
        while node is not None:
            found.setdefault(node.id, []).append(label)
            node = frame.nodes.get(node.parent)
    return found


def _text(vocab: Json, tokens: Iterable[int]) -> str:
    parts = (vocab.get(str(token), "") for token in tokens)
    return b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts).decode(errors="replace")
