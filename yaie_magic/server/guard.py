"""Who may ask: Host, Origin and key are checked before anything of a request is read."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .config import LOOPBACK_NAMES, is_loopback
from .errors import ApiError

if TYPE_CHECKING:
    from .config import ServerConfig

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?\Z")
OPEN_PATHS = ("/health",)
OPEN_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  these are recognised here, not listened to


class Guard:
    """ASGI middleware. The names in Host are compared whole, the key in constant time; decisions use the scope's path.

    A port in Host is not compared: a tunnel or container may forward another one, and a foreign page is known by its
    name, never by its port.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._config = app, config
        self._any_host = "*" in config.allowed_hosts
        own = [config.host if ":" not in config.host else f"[{config.host.strip('[]')}]"]
        names = [*LOOPBACK_NAMES, *config.allowed_hosts, *([] if config.host in OPEN_ADDRESSES else own)]
        self._hosts = frozenset(name.lower() for name in names)
        self._addresses = config.host in OPEN_ADDRESSES
        self._origins = frozenset(origin.lower() for origin in config.allowed_origins)
        self._key = None if config.api_key is None else _digest(config.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_size(scope)
            _check_framing(headers)
            self._check_host(headers)
            self._check_origin(headers)
            if not self._is_preflight(scope, headers):
                self._check_key(scope, headers)
        await self._app(scope, receive, send)

    def _check_size(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"]) + len(scope.get("raw_path") or b"")
        if size + len(scope.get("query_string", b"")) > self._config.max_header_bytes:
            text = f"the head of the request is larger than {self._config.max_header_bytes} bytes"
            raise ApiError(431, text, "headers_too_large", headers={"connection": "close"})

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if self._any_host and len(given) == 1:
            return
        name = host_name(given[0]) if len(given) == 1 else None
        if name is None or not (name in self._hosts or (self._addresses and _is_address(name))):
            raise ApiError(403, "this Host is not allowed; allowed_hosts adds names", "host_not_allowed")

    def _check_origin(self, headers: Headers) -> None:
        """A page of another site may send requests, too; its browser says so."""
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            scheme, mark, place = origin.partition("://")
            if not mark or scheme not in ("http", "https") or place.lower() != headers.get("host", "").lower():
                raise ApiError(403, "this Origin is not allowed", "origin_not_allowed")
        elif origin is None and headers.get("sec-fetch-site") == "cross-site":
            raise ApiError(403, "requests of other sites are not allowed", "origin_not_allowed")

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        """Browsers ask first, without the key; the answer holds nothing but what is allowed."""
        known = headers.get("origin", "").lower() in self._origins
        return known and scope["method"] == "OPTIONS" and "access-control-request-method" in headers

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        if self._key is None:
            address = (scope.get("server") or ("127.0.0.1",))[0]
            if _is_address(address) and not is_loopback(address):
                # Whoever started the app made it listen elsewhere than the configuration says.
                raise ApiError(403, "a server that other machines can reach needs a key", "key_needed")
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not hmac.compare_digest(_digest(given), self._key):
            raise ApiError(401, "a valid key is needed", "invalid_api_key", headers={"www-authenticate": "Bearer"})


def _check_framing(headers: Headers) -> None:
    """Two ways to say where a body ends: a proxy that believes the other one would see other requests than we do."""
    if "content-length" in headers and "transfer-encoding" in headers:
        text = "content-length and transfer-encoding are given, which exclude each other"
        raise ApiError(400, text, "two_lengths", headers={"connection": "close"})


def host_name(value: str) -> str | None:
    """The name in a Host header, in small letters; None when it is not one."""
    found = _HOST.match(value)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        return None
    return found[1].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _digest(key: str) -> bytes:
    """Of one length whatever is given, so that a comparison tells nothing."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
