"""How a server is set up: where it listens, who may ask, and how much."""

from __future__ import annotations

import ipaddress
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from yaie_engine.errors import ConfigError
from yaie_engine.params import Float, Int
from yaie_engine.validation import Checked

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def _words(value: object) -> object:
    """`a,b` is a list, too, and so is each word of an option that may be repeated."""
    if isinstance(value, str):
        value = [value]
    if not (isinstance(value, list) and all(isinstance(part, str) for part in value)):
        return value
    return [word.strip() for part in value for word in part.split(",") if word.strip()]


Words = Annotated[list[str], BeforeValidator(_words)]


class ServerConfig(Checked):
    """Everything a server is made from beside its engine.

    Raises:
        ConfigError: a name is unknown or a value out of range.
    """

    error: ClassVar[type[ConfigError]] = ConfigError

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on; any but this machine needs a key")
    port: Int = Field(8000, ge=0, le=65535, description="port to listen on (0: any free one)")
    api_key: str | None = Field(
        None, min_length=8, max_length=512, repr=False, description="key that every request but /health must carry"
    )
    served_model_name: str | None = Field(
        None, min_length=1, max_length=256, description="name of the model in requests (default: its own)"
    )
    allowed_hosts: Words = Field([], description="further names that the Host header may carry (* for all)")
    allowed_origins: Words = Field([], description="web origins whose pages may send requests")
    debug_routes: bool = Field(False, description="serve /debug/... on other addresses than this machine's, too")
    strict: bool = Field(False, description="refuse unknown fields of a request instead of ignoring them")
    access_log: Literal["plain", "json", "off"] = Field("plain", description="a line for each request")
    max_in_flight: Int | None = Field(
        None, ge=1, le=10**6, description="requests at a time (default: what the engine runs and lets wait)"
    )
    max_body_bytes: Int = Field(4 * 2**20, ge=1024, le=2**30, description="largest request body")
    max_header_bytes: Int = Field(32 * 1024, ge=1024, le=2**20, description="largest head of a request")
    max_json_depth: Int = Field(32, ge=4, le=200, description="deepest nesting of a request")
    max_messages: Int = Field(1000, ge=1, le=10**5, description="most messages of a conversation")
    max_prompts: Int = Field(256, ge=1, le=10**4, description="most prompts of a request")
    max_prompt_chars: Int = Field(10**6, ge=1, le=10**8, description="most characters of a prompt")
    header_timeout: Float = Field(10.0, gt=0, le=3600, description="seconds until the head of a request has come")
    body_timeout: Float = Field(30.0, gt=0, le=3600, description="seconds until its body has come")
    send_timeout: Float = Field(30.0, gt=0, le=3600, description="seconds a client may leave an answer unread")
    start_timeout: Float = Field(
        600.0, gt=0, le=86_400, description="seconds that loading may show no progress before the start has failed"
    )
    shutdown_timeout: Float = Field(30.0, ge=0, le=3600, description="seconds to wait for requests when it stops")

    @field_validator("api_key")
    @classmethod
    def _plain_key(cls, value: str | None) -> str | None:
        if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
            raise ValueError("a key is made of visible ASCII characters")
        return value

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def check_key(self) -> None:
        """Raise ConfigError when others could reach a server without a key."""
        if not self.loopback and self.api_key is None:
            raise ConfigError(
                f"host={self.host}: a server that other machines can reach needs a key; set YAIE_API_KEY, "
                "or api_key in the configuration file"
            )


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
