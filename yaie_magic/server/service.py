"""What the routes share: reading a body, starting its job, and answering whole or as a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from .body import read_json
from .engine_card import MODEL_HEADER
from .errors import ApiError, Json
from .exchange import exchange_of
from .fields import check_fields, shown
from .job import Job, while_connected
from .schema import Message, checked
from .stream import EventStream
from .tenant import NAMES, tenant_of

if TYPE_CHECKING:
    from yaie_engine import LLM, Generation
    from yaie_engine.snapshot import ModelInfo

    from .config import ServerConfig
    from .metrics import Metrics
    from .slot import EngineSlot

logger = logging.getLogger("yaie.server")
IGNORED_HEADER = "x-yaie-ignored"
_ECHOED = ("refusal", "annotations", "audio", "function_call")
"""Fields of a message that clients send back from an answer."""


class Service:
    """The engine's place and the settings, for all routes."""

    def __init__(self, slot: EngineSlot, config: ServerConfig, metrics: Metrics) -> None:
        self.slot, self.config, self.metrics = slot, config, metrics
        self._known: ModelInfo | None = None

    def model_name(self, llm: LLM) -> str:
        """What the model is called in requests and answers."""
        return self.config.served_model_name or self._model(llm).name or llm.config.model

    def _model(self, llm: LLM) -> ModelInfo:
        if self._known is None:
            self._known = llm.steps_since(llm.step).model
        return self._known

    async def read(self, request: Request, model: type[BaseModel]) -> dict[str, Any]:
        """The fields of a body, checked; what has no effect is noted for header and log.

        Raises:
            ApiError: the server does not serve yet, or something in the body is wrong.
        """
        llm = self.slot.llm
        meant = request.headers.get(MODEL_HEADER)
        if meant is not None and meant != self._model(llm).fingerprint:  # its token ids say something else here
            raise ApiError(409, "another model is served here by now", "model_changed")
        given = await read_json(request, self.config, self.slot)
        ignored = check_fields(given, model.model_fields, self.config.strict)
        ignored += self._in_messages(given)
        exchange = exchange_of(request.scope)
        exchange.tenant = tenant_of(given)
        if llm.config.scheduling_policy == "fair":
            ignored = [name for name in ignored if name not in NAMES]
        exchange.ignored = shown(ignored)
        if exchange.ignored:
            logger.info("%s: ignored fields: %s", exchange.request_id, ", ".join(exchange.ignored))
        body = checked(model, given)
        name = body.get("model")
        if name is not None and name not in (self.model_name(llm), llm.config.model):
            raise ApiError(404, f"there is no such model here; there is {self.model_name(llm)}", "model_not_found")
        return body

    def job(self, request: Request) -> Job:
        """A place for the work of this request.

        Raises:
            ApiError: there is none, now or ever.
        """
        return Job(self.slot, self.config, exchange_of(request.scope))

    async def whole(
        self, request: Request, job: Job, work: Callable[[], list[Generation]], render: Callable[[], Any]
    ) -> Response:
        """Queue the work, wait for its end, answer with what `render` makes of `job.outputs()`."""

        async def run() -> Response:
            await job.start(work)
            self.metrics.observe(await job.results())
            return Json(render())

        return await self._guarded(request, job, run())

    async def stream(
        self, request: Request, job: Job, work: Callable[[], list[Generation]], events: Callable[[], AsyncIterator[Any]]
    ) -> Response:
        """Queue the work and answer with `events`. The answer begins with the first of them, so that what fails before
        it has its status."""

        async def run() -> Response:
            await job.start(work)
            source = events()
            first = await anext(source)
            return EventStream(job, self._observed(job, first, source), self.config)

        return await self._guarded(request, job, run(), keep=True)

    async def _guarded(self, request: Request, job: Job, run: Awaitable[Response], keep: bool = False) -> Response:
        """`keep`: the job goes on after the answer was made."""
        try:
            response = await while_connected(request.receive, run)
        except BaseException:
            job.close()
            raise
        if not keep:
            job.close()
        return response

    async def _observed(self, job: Job, first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """All events; then the times of the requests are noted, since they ended well."""
        yield first
        async for event in rest:
            yield event
        self.metrics.observe(job.outputs())

    def _in_messages(self, given: dict[str, Any]) -> list[str]:
        """Unknown fields of messages, as `messages.name`."""
        messages = given.get("messages")
        if not isinstance(messages, list):
            return []
        names = {name for message in messages if isinstance(message, dict) for name in message}
        unknown = dict.fromkeys(names.difference(Message.model_fields, _ECHOED))
        return [f"messages.{name}" for name in check_fields(unknown, Message.model_fields, self.config.strict)]
