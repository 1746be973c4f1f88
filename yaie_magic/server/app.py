"""The app: routes, guards and the engine's place put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from . import debug_api, info_api, sleep_api, tokens_api
from .chat_api import ChatCompletion, chat_completions
from .completions_api import Completion, completions
from .config import ServerConfig
from .errors import ApiError, ErrorBody
from .generate_api import Generated, GeneratedBatch, batch_generate, generate
from .guard import Guard
from .ledger import UNPROCESSABLE, Counts, Ledger
from .limits import BodyLimit
from .metrics import Metrics
from .schema import BatchBody, ChatBody, CompletionBody, DetokenizeBody, GenerateBody, TokenizeBody
from .service import Service
from .slot import EngineSlot

if TYPE_CHECKING:
    from yaie_engine import LLM

_REASONS = {
    400: "A value is wrong.",
    401: "No valid key.",
    403: "Host or Origin is not allowed.",
    404: "No such model.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    429: "The queue is full.",
    431: "The head of the request is too large.",
    500: "Internal error.",
    503: "The model is loading or has failed.",
    504: "The request ran into its timeout.",
}
_OF_GET = (401, 403, 431, 500, 503)


def create_app(llm: LLM | EngineSlot, config: ServerConfig | None = None) -> FastAPI:
    """An ASGI app that serves the engine. The engine stays the caller's: closing it is, too.

    Args:
        llm: the engine, or the place where it will be once it has loaded.
        config: addresses, key and limits; by default those of a server for this machine only.
    """
    settings = config or ServerConfig()
    slot = llm if isinstance(llm, EngineSlot) else EngineSlot(llm)
    counts = Counts()
    service = Service(slot, settings, Metrics(slot, counts))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        settings.check_key()
        yield
        slot.drain()
        slot.close()

    app = FastAPI(title="YAIE Magic", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, _as_api_error)
    _add_routes(app, service)
    if settings.loopback or settings.debug_routes:
        _add_debug_routes(app, service)
    app.add_middleware(BodyLimit, config=settings)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(Guard, config=settings)
    app.add_middleware(Ledger, config=settings, counts=counts)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    _post(app, service, "/v1/chat/completions", chat_completions, ChatBody, ChatCompletion, streams=True)
    _post(app, service, "/v1/completions", completions, CompletionBody, Completion, streams=True)
    _post(app, service, "/generate", generate, GenerateBody, Generated, streams=True)
    _post(app, service, "/batch_generate", batch_generate, BatchBody, GeneratedBatch)
    _post(app, service, "/tokenize", tokens_api.tokenize, TokenizeBody, tokens_api.Tokens)
    _post(app, service, "/detokenize", tokens_api.detokenize, DetokenizeBody, tokens_api.Text)

    @app.get("/v1/models", response_model=info_api.Models, responses=_responses(*_OF_GET))
    async def models() -> Response:
        """The model that is served."""
        return info_api.models(service)

    loading: dict[int | str, dict[str, Any]] = {503: {"model": info_api.Health, "description": "Loading or failed."}}

    @app.get("/health", response_model=info_api.Health, responses={**_responses(403, 431, 500), **loading})
    async def health() -> Response:
        """Whether requests are served."""
        return info_api.health(service)

    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", response_class=Response, responses={**_responses(*_OF_GET), **text})
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return await service.slot.aside(service.metrics.response)


def _add_debug_routes(app: FastAPI, service: Service) -> None:
    sleep_api.add_routes(app, service, _responses)
    picture: dict[int | str, dict[str, Any]] = {200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}}
    no_renderer: dict[int | str, dict[str, Any]] = {501: {"model": ErrorBody, "description": "Nothing to draw with."}}

    @app.get("/debug/snapshot", response_model=dict[str, Any], responses=_responses(*_OF_GET))
    async def snapshot() -> Response:
        """The engine between two steps."""
        return await debug_api.snapshot(service)

    _get_asked(app, service, "/debug/recording", debug_api.recording, debug_api.Recording, debug_api.RECORDING_QUERY)
    _get_asked(app, service, "/debug/requests", debug_api.requests, debug_api.Requests, debug_api.REQUESTS_QUERY)
    _post(app, service, "/debug/cancel", debug_api.cancel, debug_api.CancelBody, debug_api.Cancelled)

    for path, draw in (("/debug/tree.svg", debug_api.tree_svg), ("/debug/blocks.svg", debug_api.blocks_svg)):

        async def drawn(draw: Any = draw) -> Response:
            return await draw(service)  # type: ignore[no-any-return]

        _get_picture(app, path, drawn, {**_responses(*_OF_GET), **picture, **no_renderer})


def _get_asked(
    app: FastAPI,
    service: Service,
    path: str,
    handler: Callable[[Service, Request], Any],
    answer: Any,
    query: dict[str, dict[str, Any]],
) -> None:
    """A route that reads its query itself; `query` is the schema of each name in it, none of which is needed."""
    parameters = [{"name": name, "in": "query", "required": False, "schema": query[name]} for name in query]
    details = {"response_model": answer, "responses": _responses(400, *_OF_GET)}
    _add(app.get, service, path, handler, openapi_extra={"parameters": parameters}, **details)


def _get_picture(app: FastAPI, path: str, drawn: Any, responses: dict[int | str, dict[str, Any]]) -> None:
    async def route() -> Response:
        return await drawn()  # type: ignore[no-any-return]

    app.get(path, response_class=Response, responses=responses, name=path)(route)


def _post(
    app: FastAPI,
    service: Service,
    path: str,
    handler: Callable[[Service, Request], Any],
    body: type[BaseModel],
    answer: Any,
    streams: bool = False,
) -> None:
    """A route that reads its body itself, so that its errors are ours; the schema says what it takes and gives."""
    bad = 422 if path in UNPROCESSABLE else 400
    responses = _responses(401, 403, 404, 408, 413, 429, 431, 500, 503, 504)
    responses[bad] = {"model": ErrorBody, "description": "A value is wrong, or the body is not JSON."}
    if streams:
        responses[200] = {"content": {"text/event-stream": {}}}
    schema = body.model_json_schema()
    content = {"content": {"application/json": {"schema": _inlined(schema, schema.pop("$defs", {}))}}, "required": True}
    _add(
        app.post, service, path, handler,
        response_model=answer, responses=responses, openapi_extra={"requestBody": content},
    )  # fmt: skip


def _add(
    method: Callable[..., Any], service: Service, path: str, handler: Callable[[Service, Request], Any], **details: Any
) -> None:
    """The route of `handler`, which names and describes it; `method` is the app's for its verb."""

    async def route(request: Request) -> Response:
        return await handler(service, request)  # type: ignore[no-any-return]

    method(path, description=handler.__doc__, name=handler.__name__, **details)(route)


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema with what it refers to in the place of the reference."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items()}


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorBody, "description": _REASONS[status]} for status in statuses}


async def _as_api_error(_: Request, error: Exception) -> Response:
    """What the framework refuses by itself, in our form: raised again for the layer that answers."""
    status = getattr(error, "status_code", 500)
    known = {404: ("there is no such route", "not_found"), 405: ("this route has another method", "method_not_allowed")}
    text, code = known.get(status, ("the request was refused", "refused"))
    raise ApiError(status, text, code, headers=dict(getattr(error, "headers", None) or {}))
