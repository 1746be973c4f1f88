"""What the engine does when its books contradict each other: a report, no new work, and an end in order.

Nobody knows what a breach has already spoilt, so the engine is not trusted with new requests. Those that it has are
finished over an empty cache: their KV is computed again from their tokens, and nothing of the books that broke is read.
After the last one the engine fails. The process, a notebook's kernel, goes on. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from .errors import EngineDeadError
from .sequence import Sequence
from .view import model_now

if TYPE_CHECKING:
    from .block_pool import BlockPool
    from .engine import LLMEngine
    from .radix_tree import Node, RadixTree

logger = logging.getLogger("yaie")
STEPS = 32
"""Step records in a report: the newest ones."""


def breach(engine: LLMEngine, found: list[str]) -> EngineDeadError:
    """Report a breach and let the engine drain; what new requests are refused with. Engine thread.

    Of several breaches the first is reported: the later ones may be its consequences. What runs cannot be finished
    then: the second one ends the engine. One that has ended stays so, whatever its books are like.
    """
    engine.totals.breaches += 1
    if engine.state not in ("ready", "asleep"):
        logger.error("the bookkeeping contradicts itself again: %s", "; ".join(found))
        if engine.alive:
            engine.state = "failed"
        return engine._dead()
    where = _write(engine, found)
    error = EngineDeadError(
        f"the engine's bookkeeping contradicts itself ({found[0] if found else 'no details'}): it finishes what runs "
        f"and takes no new requests; %yaie restart loads it again; {where}"
    )
    logger.error("%s; all that was found: %s", error, "; ".join(found))
    with engine._gate:
        engine.failure, engine.state = error, "draining"
    engine._try(engine._catch_up)
    engine._stalls = 0
    engine.scheduler.rebuild()
    for request in list(engine.requests.values()):
        if any(choice.delivered != choice.seq.num_output_tokens for choice in request.live_choices):
            engine._end(request, error)  # a token of it was lost on the way
    return error


def _write(engine: LLMEngine, found: list[str]) -> str:
    """Write the report; where it is, in words."""
    try:
        content = json.dumps(_report(engine, found), indent=1)
        handle, path = tempfile.mkstemp(prefix="yaie-breach-", suffix=".json")  # 0600, and nobody else's file
        with os.fdopen(handle, "w") as file:
            file.write(content)
    except Exception as error:
        return f"no report could be written ({error!r})"
    return f"report: {path}"


def _report(engine: LLMEngine, found: list[str]) -> dict[str, Any]:
    """Structure and numbers. No text and no token ids, which are text to whoever has the tokenizer."""
    scheduler = engine.scheduler
    name = partial(_owner, scheduler.pool)
    return {
        "format": "yaie-breach-1",
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "violations": found,
        "step": scheduler.step,
        "state": engine.state,
        "model": asdict(model_now(engine)),
        "limits": {field: getattr(scheduler.limits, field) for field in scheduler.limits.__dataclass_fields__},
        "pool": {
            "total": scheduler.pool.total,
            "block_size": scheduler.pool.block_size,
            "free": scheduler.pool.num_free,
            "held": scheduler.pool.num_held,
            "blocks": [name(block) for block in range(scheduler.pool.total)],
        },
        "tree": _nodes(scheduler.tree),
        "running": [_sequence(seq) for seq in scheduler.running],
        "waiting": [_sequence(seq) for seq in scheduler.waiting],
        "steps": [asdict(step) for step in engine.recorder.steps()[-STEPS:]],
    }


def _owner(pool: BlockPool, block: int) -> dict[str, Any]:
    owner, writer = pool.owner[block], pool.writer[block]
    named = None if owner is None else owner.label if isinstance(owner, Sequence) else f"node {owner.id}"
    return {"owner": named, "writer": None if writer is None else writer.label, "ref_count": pool.ref_count[block]}


def _nodes(tree: RadixTree) -> list[dict[str, Any]]:
    """Each node once, though parents may be wrong."""
    seen: dict[int, dict[str, Any]] = {}
    stack: list[Node] = list(tree.roots.values())
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = {
            "id": node.id,
            "parent": None if node.parent is None else node.parent.id,
            "start": node.start,
            "num_tokens": len(node.token_ids),
            "blocks": node.blocks,
            "used": node.used,
            "queued": node.queued,
            "namespace": hashlib.sha256(node.namespace.encode()).hexdigest()[:8] if node.namespace else "",
        }
        stack += node.children.values()
    return list(seen.values())


def _sequence(seq: Sequence) -> dict[str, Any]:
    plain = ("state", "num_prompt_tokens", "num_tokens", "max_tokens", "computed", "valid", "prefill_end", "admitted")
    return {"label": seq.label, **{field: getattr(seq, field) for field in plain}, "block_table": seq.block_table}
