"""The routes below /debug: the engine as the views of a notebook see it, for those who look from elsewhere."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from .errors import ApiError, Json
from .schema import CONFIG

if TYPE_CHECKING:
    from yaie_engine import LLM

    from .service import Service

MOST_REVISIONS, MOST_RECORDS = 2**53, 10_000
_RUN = re.compile(r"[0-9a-f]{32}")
RECORDING_QUERY: dict[str, dict[str, Any]] = {
    "run": {"type": "string", "pattern": f"^{_RUN.pattern}$", "description": "the run that is known already"},
    "since": {"type": "integer", "minimum": 0, "maximum": MOST_REVISIONS, "description": "up to this revision"},
}
REQUESTS_QUERY: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 0, "maximum": MOST_RECORDS, "description": "so many of those that ended"},
}


class Recording(TypedDict):
    """`recording` is all that is known of the run; `delta` what became known after the revision that was asked for.
    `memory` is that of the server's process in bytes; null when the engine has ended."""

    run: str
    revision: int
    memory: int | None
    recording: NotRequired[dict[str, Any]]
    delta: NotRequired[dict[str, Any]]


class Requests(TypedDict):
    """Requests that have ended, oldest first, and the ids of those that have not."""

    ended: list[dict[str, Any]]
    running: list[str]


class Cancelled(TypedDict):
    """How many requests were running and end now."""

    cancelled: int


class CancelBody(BaseModel):
    """Which request; null means all."""

    model_config = CONFIG
    request_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None


async def snapshot(service: Service) -> Response:
    """Everything the views draw; it holds the texts of cached prompts."""
    llm = _engine(service)
    return _not_kept(await service.slot.aside(lambda: Json(llm.snapshot().to_dict())))


async def recording(service: Service, request: Request) -> Response:
    """The recorded steps and what they changed: all of it, or what came after a revision of the same run."""
    from yaie_widgets.live.source import engine_source

    llm = _engine(service)
    run, revision = request.query_params.get("run"), _number(request, "since", MOST_REVISIONS)
    if run is not None and not _RUN.fullmatch(run):
        raise ApiError(400, "run: use the name that an earlier answer gave", "invalid_value", "run")
    since = -1 if revision is None else revision
    return _not_kept(await service.slot.aside(lambda: Json(engine_source(llm).news(run or "", since))))


async def requests(service: Service, request: Request) -> Response:
    """What the engine remembers of its requests: of those that have ended, the last `limit`."""
    llm, limit = _engine(service), _number(request, "limit", MOST_RECORDS)

    def found() -> Response:
        running = llm.running() if llm.state not in ("failed", "closed") else []
        return Json({"ended": [asdict(record) for record in llm.history(limit)], "running": running})

    return _not_kept(await service.slot.aside(found))


def _number(request: Request, name: str, most: int) -> int | None:
    """A whole number in the query; None when it is not there.

    Raises:
        ApiError: it is none, or out of range.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,16}", text) or int(text) > most:
        raise ApiError(400, f"{name}: use a whole number from 0 to {most}", "invalid_value", name)
    return int(text)


async def cancel(service: Service, request: Request) -> Response:
    """End one request, or all, whoever sent them; what they have so far is kept."""
    body = await service.read(request, CancelBody)
    llm = service.slot.llm
    return _not_kept(Json({"cancelled": await service.slot.aside(lambda: llm.cancel(body.get("request_id")))}))


async def tree_svg(service: Service) -> Response:
    """The radix tree."""
    from yaie_widgets import draw_radix_tree

    return await _drawn(service, draw_radix_tree)


async def blocks_svg(service: Service) -> Response:
    """The block tables."""
    from yaie_widgets import draw_block_table

    return await _drawn(service, draw_block_table)


def _engine(service: Service) -> LLM:
    """The engine, also one that has failed: what it recorded is there still.

    Raises:
        ApiError: the model is loading.
    """
    return service.slot.engine or service.slot.llm


async def _drawn(service: Service, draw: Any) -> Response:
    from yaie_widgets.render import RenderError

    llm = _engine(service)
    try:
        svg = await service.slot.aside(lambda: draw(llm.snapshot()).svg)
    except RenderError:
        raise ApiError(501, "no Graphviz program is found on the server to draw with", "no_renderer") from None
    response = Response(svg, media_type="image/svg+xml")
    # A picture is data: whatever text is in it, no script of it may run.
    response.headers["content-security-policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return _not_kept(response)


def _not_kept(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    response.headers["x-content-type-options"] = "nosniff"
    return response
