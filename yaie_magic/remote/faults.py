"""What can go wrong with a server far away, each as one line that names the way out."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import httpx

from yaie_engine.errors import (
    AsleepError,
    BusyError,
    CapacityError,
    EngineDeadError,
    QueueFullError,
    RequestError,
    RequestTimeout,
    YaieError,
)
from yaie_engine.serving import NotOffered

from .document import parse
from .key import Key

LONGEST = 300
RETRIED = (429, 503)


class RemoteError(YaieError):
    """A server cannot be reached, or does not do what is asked of it."""


class KeyNeeded(RemoteError):
    """The server wants a key, or another one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status: `wait_s` is what its Retry-After says, `key_given` whether a key was sent."""

    status: int
    message: str
    code: str
    wait_s: float | None
    key_given: bool

    @property
    def passing(self) -> bool:
        """Whether the same request may be taken later."""
        return self.status == 429 or (self.status == 503 and self.code in ("", "loading", "unavailable_error"))

    def to_error(self, url: str, path: str) -> YaieError:
        """The error of the engine that this is."""
        said = f": {self.message}" if self.message else ""
        if self.status == 401:
            return KeyNeeded(_key_line(url, self.key_given))
        if self.status == 403:
            return RemoteError(
                f"{url} refuses to serve this address{said}; allow it there (allowed_hosts), or use another"
            )
        if self.status == 404 and self.code == "model_not_found":
            return RemoteError(f"{url}{said}; --model chooses another")
        if self.status == 404 and path.startswith("/debug/"):
            return NotOffered(f"{url} shows nothing of its engine; start that server with --debug-routes")
        if self.status in (404, 405, 501) and path == "/metrics":
            return NotOffered(f"{url} has no metrics{said}; llama.cpp's server tells them with --metrics")
        if self.status in (404, 405):
            return RemoteError(f"{url} has no {path}; is it the address of a server with the OpenAI API?")
        if self.status in (400, 422, 413):
            kind = CapacityError if self.code == "context_length_exceeded" else RequestError
            return kind(self.message or f"{url} refused the request ({self.status})")
        if self.status == 409 and self.code == "model_changed":
            return RemoteError(f"{url}{said}; %yaie restart connects to it")
        if self.status == 409 and (count := re.match(r"[0-9]{1,9}(?= requests? )", self.message)):
            return BusyError(self.message, int(count[0]))
        if self.status == 429:
            return QueueFullError(f"{url} is busy{said}; try again later")
        if self.status == 504:
            return RequestTimeout(self.message or "the request ran into its timeout")
        if self.status == 503 and self.code == "asleep":
            return AsleepError()
        if self.status == 503:
            return EngineDeadError(f"{url} does not serve now{said}")
        if 300 <= self.status < 400:
            return RemoteError(f"{url} sends on to another address, which is not followed; give that one")
        return RemoteError(f"{url} failed ({self.status}){said}")


def _key_line(url: str, given: bool) -> str:
    if given:
        return f"{url} does not take this key; set another in YAIE_API_KEY, or name its variable with --key-env"
    return f"{url} wants a key; set YAIE_API_KEY, or name the variable that holds it with --key-env"


def refusal_of(status: int, headers: httpx.Headers, body: bytes, key: Key | None) -> Refusal:
    """The refusal in an answer, of whichever server."""
    message, code = _message(body)
    if key is not None:
        message = key.hidden_in(message)
    return Refusal(status, one_line(message), code, _seconds(headers.get("retry-after")), key is not None)


def _message(body: bytes) -> tuple[str, str]:
    """The text and code of an error body: that of OpenAI, or `detail` or `message` at the top."""
    try:
        found: Any = parse(body)
    except ValueError:
        return "", ""
    if isinstance(found, dict) and isinstance(found.get("error"), dict):
        found = found["error"]
    if not isinstance(found, dict):
        return "", ""
    texts = (found.get(name) for name in ("message", "error", "detail"))
    text = next((text for text in texts if isinstance(text, str)), "")
    code = found.get("code") if isinstance(found.get("code"), str) else found.get("type")
    return text, code if isinstance(code, str) else ""


def one_line(text: str) -> str:
    """Text of a server as part of a line: no control characters, no end of it that never comes."""
    plain = " ".join(re.sub(r"[^\x20-\x7e\u00a0-\u1fff\u2010-\u2027\u2030-\ud7ff]", " ", text[: 4 * LONGEST]).split())
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 3] + "..."


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; the form with a date is not read."""
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) else None


def unreachable(error: Exception, url: str, timeout: float) -> RemoteError:
    """Why nothing came, or no more."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return RemoteError(f"no machine has the name in {url}; check the address")
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RemoteError(f"the certificate of {url} is not trusted ({one_line(cause.verify_message)})")
        if isinstance(cause, ConnectionRefusedError):
            break
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return RemoteError(f"{url} does not answer within {timeout:g} s; is it running, and may this machine reach it?")
    if isinstance(error, httpx.ConnectError):
        return RemoteError(f"nothing listens on {url}; start the server there, or check machine and port")
    if isinstance(error, httpx.TimeoutException):
        return RemoteError(f"{url} stopped answering")
    if isinstance(error, httpx.HTTPError):
        return RemoteError(f"the connection to {url} broke ({type(error).__name__})")
    return RemoteError(f"{url}: {type(error).__name__}")
