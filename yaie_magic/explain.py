"""From a completion to what the engine remembers of its request, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie_engine.serving import Engine

    from .completion import Completion


def explain_completion(completion: Completion) -> Any:
    """What the engine did for a completion.

    Raises:
        EngineDeadError: its engine was unloaded.
    """
    from yaie_engine.errors import EngineDeadError

    llm = completion._run.engine
    if llm is None or llm.state == "closed":
        raise EngineDeadError("the engine of this completion was unloaded, and its records with it")
    return explain_request_of(llm, completion.request_id)


def explain_request_of(llm: Engine, request_id: str) -> Any:
    """What the engine did for a request, compared with the one before it.

    Raises:
        RequestError: the request still runs, or is not remembered.
    """
    from yaie_engine.errors import RequestError
    from yaie_widgets import explain_request

    records = llm.history()
    position = next((i for i, record in enumerate(records) if record.request_id == request_id), None)
    if position is None:
        running = request_id in llm.running()
        raise RequestError(
            f"request {request_id} is still running; explain it when it has ended"
            if running
            else f"request {request_id} is not remembered; %yaie history lists those that are"
        )
    previous = records[position - 1] if position else None
    return explain_request(records[position], previous, llm.snapshot(), decode=lambda ids: llm.detokenize(list(ids)))
