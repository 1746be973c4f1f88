"""Finding out what answers at an address."""

from __future__ import annotations

from .address import parse_address
from .card import choose, read_cards
from .client import Client
from .llm import RemoteLLM


def connect(url: str, key: str | None = None, *, model: str | None = None, timeout: float = 10.0) -> RemoteLLM:
    """The engine behind an address: our own server, or any other with the OpenAI API.

    Args:
        url: like http://127.0.0.1:8000, with or without /v1.
        key: what the server wants as `Authorization: Bearer`; kept in memory only.
        model: which of several models; needed where a server has more than one.
        timeout: seconds to wait for a connection and for short answers.

    Raises:
        ConfigError: the address or the model is wrong.
        KeyNeeded: the server wants a key, or another one.
        YaieError: it cannot be reached, or is no such server.
    """
    address = parse_address(url)
    client = Client(address, key, timeout)
    try:
        card = choose(read_cards(client.get_json("/v1/models"), address.root), model, address.root)
    finally:
        client.close()
    return RemoteLLM(address, key, "yaie" if card.own else "openai", card, timeout)
