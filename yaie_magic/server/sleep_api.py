"""POST /sleep and /wake_up, GET /is_sleeping: the engine gives its memory back for a while, under vLLM's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from yaie_engine.errors import BusyError, ConfigError, EngineDeadError, ModelLoadError, YaieError

from .errors import ApiError, ErrorBody, Json, refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .service import Service

T = TypeVar("T")
Responses = dict[int | str, dict[str, Any]]
FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}
LEVELS = {"1": 1, "2": 2}
_FOLDERS = re.compile(
    r"""(?<=['"])(?:[A-Za-z]:)?[\\/][^'"]*[\\/]|(?<![\w.:/'"])(?:[A-Za-z]:)?[\\/](?:[^\s'"\\/]+[\\/])+"""
)
"""The folders of a path, within quotes or up to a space."""
SLEEP_QUERY = [
    {
        "name": "level",
        "in": "query",
        "description": "1 releases the KV cache and moves weights off a GPU, 2 drops the weights, too",
        "schema": {"type": "integer", "enum": [1, 2], "default": 1},
    },
    {
        "name": "force",
        "in": "query",
        "description": "cancel running requests instead of refusing",
        "schema": {"type": "boolean", "default": False},
    },
]


class Released(TypedDict):
    """What the engine's device got back, in bytes. `why` says why weights were kept."""

    kv_bytes: int
    weight_bytes: int
    weights: Literal["kept", "host", "dropped"]
    why: str


class Asleep(TypedDict):
    """`already`: the engine slept before, and nothing was given back now."""

    is_sleeping: bool
    level: int
    freed: Released
    num_cancelled: int
    already: bool


class Awake(TypedDict):
    """How long it took; `already`: the engine was awake."""

    is_sleeping: bool
    seconds: float
    already: bool


class State(TypedDict):
    is_sleeping: bool


def add_routes(app: FastAPI, service: Service, answers: Callable[..., Responses]) -> None:
    """`answers` makes the descriptions of error statuses."""
    errors = answers(400, 401, 403, 431, 500, 503)
    errors[409] = {"model": ErrorBody, "description": "Requests are running."}

    @app.post("/sleep", response_model=Asleep, responses=errors, openapi_extra={"parameters": SLEEP_QUERY})
    async def sleep(request: Request) -> Response:
        """Give memory back until /wake_up. Requests are refused meanwhile, and cached prefixes are gone."""
        level = _choice(request, "level", LEVELS, 1)
        force = _choice(request, "force", FLAGS, False)
        llm = service.slot.llm
        report = await _carried_out(service, lambda: llm.sleep(level, force=force))
        return _told({"is_sleeping": True, **asdict(report)})

    @app.post("/wake_up", response_model=Awake, responses=answers(401, 403, 431, 500, 503))
    async def wake_up() -> Response:
        """Take the memory again and serve."""
        llm = service.slot.llm
        report = await _carried_out(service, llm.wake_up)
        return _told({"is_sleeping": False, **asdict(report)})

    @app.get("/is_sleeping", response_model=State, responses=answers(401, 403, 431, 500, 503))
    async def is_sleeping() -> Response:
        """Whether the engine sleeps."""
        return _told({"is_sleeping": service.slot.llm.is_sleeping})


def _choice(request: Request, name: str, allowed: dict[str, T], otherwise: T) -> T:
    """A word of the query.

    Raises:
        ApiError: it is not one of those that are allowed.
    """
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if text not in allowed:
        names = ", ".join(word for word in allowed if word)
        raise ApiError(400, f"{name}: allowed are {names}", "invalid_value", name)
    return allowed[text]


async def _carried_out(service: Service, work: Callable[[], T]) -> T:
    """The result of `work`, beside the event loop.

    Raises:
        ApiError: the engine refused or could not.
    """
    try:
        return await service.slot.aside(work)
    except BusyError as error:
        noun = "request is" if error.count == 1 else "requests are"
        text = f"{error.count} {noun} running: wait for the end, or force cancels them"
        raise ApiError(409, text, "requests_running") from None
    except (ConfigError, EngineDeadError) as error:
        raise refused(error) from None
    except ModelLoadError as error:
        code = "asleep" if service.slot.state == "asleep" else "no_memory"
        raise ApiError(503, _without_folders(error), code) from None
    except YaieError as error:
        raise ApiError(500, _without_folders(error), "internal_error") from None


def _without_folders(error: Exception) -> str:
    """Its text; of files that it names no more than the names."""
    return _FOLDERS.sub("", str(error))


def _told(content: Mapping[str, object]) -> Response:
    response = Json(content)
    response.headers["cache-control"] = "no-store"
    return response
