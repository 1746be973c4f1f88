"""The recording of an engine as plain JSON data: what live views receive, and what a saved run consists of.

Keys that would hold an empty list, false or 0 are left out of a step.

What became known since travels as a delta with the keys `steps`, `requests`, `vocab` and `engine`: the steps that are
new, of each request the facts that are new or have changed (of a new request all of them), the tokens that are new, and
the facts of the engine that have changed. Messages above some size travel packed: see `packing`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from yaie_engine.snapshot import StepRecord
from yaie_engine.tape import Frame, TapeStep

from .schema import MAX_TEXT, sound

if TYPE_CHECKING:
    from yaie_engine.increment import RequestFacts

Json = dict[str, Any]
FORMAT, VERSION = "yaie-recording", 1
MAX_STEPS = 4096
"""Steps that a recording holds; older ones are part of its base."""
MAX_REQUESTS = 50_000
"""Requests of which a saved recording has the facts."""
MAX_ENTRIES = 60_000
"""Batch entries in the steps of a recording that goes to a page: packed, they are about a million bytes."""
LIVE = ("waiting", "prefill", "decode", "preempted", "swapped")
"""States of requests that have not ended."""
MODEL = ("name", "fingerprint", "dtype", "device", "tier", "attention_backend")
"""What a recording tells of the model."""
_HEAD = 200
_FACTS = (
    "state",
    "finish_reason",
    "stop_reason",
    "error",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "submitted_at",
    "queue_s",
    "ttft_s",
    "total_s",
)


def step_json(record: StepRecord, change: TapeStep) -> Json:
    """One step: its record and what it changed."""
    blocks, tree, moved = record.blocks, record.tree, change.tree
    ms = record.ms
    always = {
        "step": record.step,
        "at": round(change.at, 6),
        "prefill": record.num_prefill_tokens,
        "decode": record.num_decode_tokens,
        "batch": [[entry.request_id, entry.kind, entry.num_tokens] for entry in record.batch],
        "ms": [round(part, 4) for part in (ms.schedule, ms.forward, ms.sample, ms.publish)],
    }
    sometimes = {
        "allocated": list(blocks.allocated),
        "freed": list(blocks.freed),
        "evicted": list(blocks.evicted),
        "copied": [list(pair) for pair in blocks.copied],
        "swapped": [list(pair) for pair in blocks.swapped],
        "added": list(tree.added),
        "extended": list(tree.extended),
        "split": list(tree.split),
        "removed_nodes": list(tree.evicted),
        "preempted": list(record.preempted),
        "arrived": list(change.arrived),
        "admitted": [list(pair) for pair in change.admitted],
        "left": [list(pair) for pair in change.left],
        "tables": [[t.label, t.kept, list(t.blocks), t.num_computed] for t in change.tables],
        "wiped": moved.wiped,
        "nodes": [_node_change(node) for node in moved.nodes],
        "removed": list(moved.removed),
        "used": [list(pair) for pair in moved.used],
        "host_held": change.host_held,
    }
    return always | {key: value for key, value in sometimes.items() if value}


def _node_change(node: Any) -> list[Any]:
    head = [node.id, node.parent, words(node.namespace), node.start]
    return [*head, node.tokens_kept, list(node.token_ids), node.blocks_kept, list(node.blocks), node.used_step]


def frame_json(frame: Frame) -> Json:
    """A frame: the state of tree, tables and queue after a step."""
    return {
        "step": frame.step,
        "nodes": [
            [n.id, n.parent, words(n.namespace), n.start, list(n.token_ids), list(n.blocks), n.used_step]
            for n in frame.nodes.values()
        ],
        "tables": [[label, list(table.blocks), table.num_computed] for label, table in frame.tables.items()],
        "waiting": list(frame.waiting),
    }


def facts_json(facts: RequestFacts, head: str) -> Json:
    """What is known of one request; `head` is the text of its first tokens, for one that came without a text."""
    known = asdict(facts)
    text = (facts.prompt if facts.prompt is not None else head)[:_HEAD]
    return {"text": sound(text), **{name: _fact(known[name]) for name in _FACTS}}


def _fact(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else words(value) if isinstance(value, str) else value


def words(value: str) -> str:
    """A text from the engine as a recording may hold it."""
    return sound(value[:MAX_TEXT])[:MAX_TEXT]


def token_json(raw: bytes | None) -> str | list[int]:
    """The text of a token, or its bytes where it is no valid UTF-8 by itself."""
    if raw is None:
        return ""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def tokens_of(step: Json) -> set[int]:
    """The token ids that a step names."""
    return {token for node in step.get("nodes", ()) for token in node[5]}
