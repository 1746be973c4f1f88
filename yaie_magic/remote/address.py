"""The address of a server, as a person writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from yaie_engine.errors import ConfigError
from yaie_magic.server.config import is_loopback

_EXAMPLE = "write it like http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Address:
    """`root` is where the routes begin, without a slash at its end; `loopback`: only this machine is meant."""

    root: str
    loopback: bool
    encrypted: bool

    @property
    def exposed(self) -> bool:
        """Whether others on the way can read what is sent."""
        return not (self.loopback or self.encrypted)


def parse_address(url: str) -> Address:
    """The address that was meant: http where no scheme is given, and without the /v1 that clients of OpenAI want.

    Raises:
        ConfigError: it is no address of a server, or a key is in it.
    """
    text = url.strip()
    if re.search(r"[\s\\<>\"'\x00-\x1f\x7f]", text):  # looked for first: urlsplit drops some of them
        raise ConfigError(f"the address has characters that none has; {_EXAMPLE}")
    if not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"the address is not one of a server ({error}); {_EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a key does not belong into the address, where it would be kept; set YAIE_API_KEY instead")
    if parts.query or parts.fragment:
        raise ConfigError(f"the address ends before ? and #; {_EXAMPLE}")
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"{parts.scheme}: only http and https are spoken; {_EXAMPLE}")
    if not host:
        raise ConfigError(f"no machine is named in the address; {_EXAMPLE}")
    name = f"[{host}]" if ":" in host else host
    place = name if port is None else f"{name}:{port}"
    path = re.sub(r"/v1$", "", parts.path.rstrip("/"))
    root = f"{parts.scheme}://{place}{path}"
    _check(root)
    return Address(root, is_loopback(host), parts.scheme == "https")


def _check(root: str) -> None:
    """Whether the client can speak to it: names of machines have letters of their own.

    Raises:
        ConfigError: it cannot.
    """
    import httpx

    try:
        httpx.URL(root).raw_host.decode("ascii").encode("idna")  # which looks at the length of its parts, too
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(f"the address has characters that none has; {_EXAMPLE}") from None
