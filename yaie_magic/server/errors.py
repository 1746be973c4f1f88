"""Errors as HTTP answers: one form of body, and the status of each kind. No prompt, path or traceback is in a body."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.responses import Response
from typing_extensions import TypedDict

from yaie_engine.errors import (
    AsleepError,
    CapacityError,
    ConfigError,
    EngineDeadError,
    QueueFullError,
    RequestError,
    RequestTimeout,
)
from yaie_engine.outputs import RequestOutput

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable",
    504: "timeout_error",
}
RETRY_AFTER_S = 1
LONGEST_MESSAGE = 500
_RELOAD = "%yaie restart, or a new start of the server, loads it again"
DEAD = f"the engine does not serve any more; {_RELOAD}"
DRAINING = f"the engine's bookkeeping contradicts itself: it finishes what runs and takes no new requests; {_RELOAD}"
_PREFIX = re.compile(r"^(SamplingParams|EngineConfig): ")


class ErrorDetail(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None
    request_id: str


class ErrorBody(TypedDict):
    """The body of every answer with a status from 400 on."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer with an error status. A status of 400 becomes the route's own for bad values (422 on /generate)."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.message = " ".join(message.split())[:LONGEST_MESSAGE]
        self.headers = headers or {}

    def body(self, request_id: str) -> ErrorBody:
        """The JSON form."""
        kind = TYPES.get(self.status, "invalid_request_error")
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
            }
        }


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class Json(Response):
    """A JSON answer in UTF-8. A lone surrogate, which a name in a request may hold, becomes a question mark."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(content: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def busy(message: str) -> ApiError:
    """429: come back later."""
    return ApiError(429, message, "queue_full", headers={"retry-after": str(RETRY_AFTER_S)})


def draining() -> ApiError:
    """503: what runs is finished, nothing new is taken, and waiting for it would be in vain."""
    return ApiError(503, DRAINING, "engine_draining", headers={"x-should-retry": "false"})


def bad_value(error: RequestError | ConfigError) -> ApiError:
    """A value that the engine refused: its text names field, value and range."""
    code = "context_length_exceeded" if isinstance(error, CapacityError) else "invalid_value"
    text = _PREFIX.sub("", str(error))
    named = re.match(r"^([A-Za-z_]{1,64})(?=[=.\[:])", text)
    return ApiError(400, text, code, named[1] if named else None)


def refused(error: Exception) -> ApiError:
    """What kept a request from being queued."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return busy(str(error))
    if isinstance(error, EngineDeadError):
        return ApiError(503, DEAD, "engine_dead")
    if isinstance(error, AsleepError):
        text = "the engine is asleep: POST /wake_up or %yaie wake wakes it"
        return ApiError(503, text, "asleep", headers={"x-should-retry": "false"})
    if isinstance(error, RequestError | ConfigError):
        return bad_value(error)
    return ApiError(500, "the request could not be prepared; the server's log says why", "internal_error")


def failure(output: RequestOutput) -> ApiError | None:
    """What ended a request that was running, unless it ended well."""
    error = output.error
    if isinstance(error, RequestTimeout):
        return ApiError(504, "the request ran into its timeout", "timeout")
    if isinstance(error, EngineDeadError):
        return ApiError(503, "the engine failed while the request ran", "engine_dead")
    if error is not None:
        return ApiError(500, "the request failed while it ran; the server's log says why", "internal_error")
    if any(choice.finish_reason == "cancelled" for choice in output.outputs):
        # Clients repeat a 503 by themselves; what somebody cancelled on purpose must not come back.
        return ApiError(
            503, "the request was cancelled by the server", "cancelled", headers={"x-should-retry": "false"}
        )
    return None
