"""The servers that this session runs over its engines."""

from __future__ import annotations

import atexit
import secrets
from typing import TYPE_CHECKING, Any

from yaie_engine.errors import ConfigError

from .local import local_llm
from .options import UsageProblem
from .session import session

if TYPE_CHECKING:
    from .server.background import BackgroundServer
    from .session import LoadedEngine

_SERVERS: dict[str, BackgroundServer] = {}


def server_of(engine: str) -> BackgroundServer | None:
    """The server over the engine of that name, if it runs."""
    found = _SERVERS.get(engine)
    if found is not None and not found.running:
        del _SERVERS[engine]
        return None
    return found


def start(engine: LoadedEngine, options: dict[str, Any]) -> BackgroundServer:
    """Serve an engine under a new random key. A port that was not asked for may be another when it is taken.

    Raises:
        UsageProblem: it is served already, or it runs elsewhere.
        ConfigError: an option is wrong, or the port is taken.
    """
    from .server.background import BackgroundServer
    from .server.config import ServerConfig

    llm = local_llm(engine, "serve")
    running = server_of(engine.name)
    if running is not None:
        raise UsageProblem(f"serve: {engine.model} is served on {running.url} already; --stop ends that")

    def gone() -> bool:
        return session.engines.get(engine.name) is not engine

    config = ServerConfig(**{"access_log": "off", **options, "api_key": secrets.token_urlsafe(24)})
    try:
        server = BackgroundServer(llm, config, gone)
    except ConfigError:
        if "port" in options:
            raise
        server = BackgroundServer(llm, config.replace(port=0), gone)
    _SERVERS[engine.name] = server
    return server


def stop(engine: str) -> bool:
    """End the server over an engine; False when there is none."""
    found = server_of(engine)
    if found is None:
        return False
    found.stop()
    _SERVERS.pop(engine, None)
    return True


@atexit.register
def stop_all() -> None:
    """End every server."""
    for name in list(_SERVERS):
        stop(name)
