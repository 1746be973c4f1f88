"""Finding out what answers at an address."""

from __future__ import annotations

from .address import Address, parse_address
from .bodies import COMPLETIONS
from .card import choose, read_cards
from .client import Client
from .key import Key
from .llm import RemoteLLM


def connect(url: str, key: str | Key | None = None, *, model: str | None = None, timeout: float = 10.0) -> RemoteLLM:
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
    if isinstance(key, str):
        key = Key(key)  # from here on no traceback that shows variables has its text
    return open_at(parse_address(url), key, model, timeout)


def open_at(address: Address, key: Key | None, model: str | None, timeout: float) -> RemoteLLM:
    """`connect` with an address and a key that were read already."""
    client = Client(address, key, timeout)
    try:
        card = choose(read_cards(client.get_json("/v1/models"), address.root), model, address.root)
        texts = card.own or client.takes(COMPLETIONS)
    finally:
        client.close()
    return RemoteLLM(address, key, "yaie" if card.own else "openai", card, timeout, texts)
