"""The body of a request: JSON of bounded size and depth, read off the event loop where it is large."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from .errors import ApiError, ClientGone

if TYPE_CHECKING:
    from .config import ServerConfig
    from .slot import EngineSlot

SMALL = 64 * 1024


async def read_json(request: Request, config: ServerConfig, slot: EngineSlot) -> dict[str, Any]:
    """The object in the body.

    Raises:
        ApiError: it does not say it is JSON, is none, is no object, or is nested too deep.
        ClientGone: the connection ended first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A web page can send any other type to us without asking its browser first.
        raise ApiError(400, "the content-type must be application/json", "invalid_json")
    try:
        data = await request.body()
    except ClientDisconnect:
        raise ClientGone from None
    if len(data) <= SMALL:
        return parse(data, config.max_json_depth)
    return await slot.aside(lambda: parse(data, config.max_json_depth))


def parse(data: bytes, max_depth: int) -> dict[str, Any]:
    """The object that a body holds."""
    try:
        found = json.loads(data.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError:
        raise ApiError(400, "the body is not JSON in UTF-8", "invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body must be a JSON object", "invalid_json")
    level: list[Any] = [found]
    for _ in range(max_depth):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        if not level:
            return found
    raise _too_deep(max_depth)


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _too_deep(max_depth: int) -> ApiError:
    return ApiError(400, f"the body is nested deeper than {max_depth} levels", "invalid_json")
