"""The listening socket, taken before the model loads, so that a port in use is said at once."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from yaie_engine.errors import ConfigError

if TYPE_CHECKING:
    from .config import ServerConfig

SEND_BUFFER = 256 * 1024
"""What the kernel keeps for a client that does not read; by default it grows to megabytes for each."""


def bind(config: ServerConfig) -> socket.socket:
    """One socket that listens where the configuration says.

    Raises:
        ConfigError: the address is none of this machine's, or the port is taken.
    """
    config.check_key()
    host = config.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host={config.host}: {error.strerror or error}") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        found.bind(address)
        found.listen(2048)
        found.setblocking(False)
    except OSError as error:
        found.close()
        raise ConfigError(f"cannot listen on {config.host} port {config.port}: {error.strerror or error}") from None
    return found


def url_of(found: socket.socket) -> str:
    """The address for a client on this machine."""
    host, port = found.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not listened to
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
