"""GET /health and /v1/models."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NotRequired

from starlette.responses import Response
from typing_extensions import TypedDict

from .engine_card import EngineCard, engine_card
from .errors import Json
from .memory import process_memory

if TYPE_CHECKING:
    from .service import Service

WAITING = ("waiting", "preempted", "swapped")


class Memory(TypedDict):
    """Bytes of the process, and the KV blocks of the engine."""

    process_bytes: int
    peak_bytes: int
    kv_blocks: NotRequired[int]


class Health(TypedDict):
    """200 when it serves, 503 while it loads and when it failed. `stage` is what loading is busy with, `reason` why
    nothing new is served.

    An engine that sleeps was sent there and is well: 200, so that nobody restarts what it keeps.
    """

    status: Literal["ok", "asleep", "loading", "failed"]
    model: str | None
    active_requests: int
    queue_length: int
    memory: Memory
    stage: NotRequired[str]
    reason: NotRequired[str]


class Model(TypedDict):
    id: str
    object: str
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    engine: EngineCard


class Models(TypedDict):
    object: str
    data: list[Model]


STARTED = int(time.time())


def health(service: Service) -> Response:
    """Whether requests are served. Reads without waiting for the engine, which may be in a long step."""
    slot, llm, reason = service.slot, service.slot.engine, service.slot.reason
    used, peak = process_memory()
    found: Health = {
        "status": "failed" if reason else slot.state,
        "model": None if llm is None else service.model_name(llm),
        "active_requests": 0,
        "queue_length": 0,
        "memory": {"process_bytes": used, "peak_bytes": peak},
    }
    if llm is not None:
        now = llm.steps_since(llm.step)
        states = [facts.state for facts in now.requests]
        found["queue_length"] = sum(state in WAITING for state in states)
        found["active_requests"] = len(states) - found["queue_length"]
        found["memory"]["kv_blocks"] = 0 if now.state == "asleep" else now.num_blocks
    elif slot.state == "loading":
        found["stage"] = slot.stage
    if reason:
        found["reason"] = reason
    response = Json(found, status_code=200 if found["status"] in ("ok", "asleep") else 503)
    response.headers["cache-control"] = "no-store"
    return response


def models(service: Service) -> Response:
    """The one model."""
    llm = service.slot.llm
    model: Model = {
        "id": service.model_name(llm),
        "object": "model",
        "created": STARTED,
        "owned_by": "yaie",
        "root": service.model_name(llm),
        "parent": None,
        "max_model_len": llm.max_model_len,
        "engine": engine_card(llm),
    }
    return Json({"object": "list", "data": [model]})
