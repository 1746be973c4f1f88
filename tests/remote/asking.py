"""One request to a scripted server, and the answers it may give."""

from __future__ import annotations

from typing import Any

from tests.remote.scripted import ScriptedServer
from yaie_engine import RequestOutput, SamplingParams
from yaie_magic.remote import connect

COMPLETIONS = "/v1/completions"


def ask(server: ScriptedServer, key: str | None = None, **params: Any) -> RequestOutput:
    """The output of one request."""
    with connect(server.url, key, timeout=5) as remote:
        return remote.submit("x", SamplingParams(**params)).result(30)


def answers(server: ScriptedServer, *events: Any) -> None:
    """Answer completions with these events and close the connection."""
    server.on(COMPLETIONS, lambda _, reply: reply.stream(*events))
