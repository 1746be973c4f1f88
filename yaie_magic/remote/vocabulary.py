"""The vocabulary of a server's model, fetched as it is needed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .answer import token_ids
from .faults import RemoteError

if TYPE_CHECKING:
    from .client import Client

PAGE = 256
"""Tokens fetched at a time: a text that is shown token by token soon asks for its neighbours."""
LONGEST_TOKEN = 4096


class RemoteTokenizer:
    """The tokenizer of our own server. What was fetched is kept."""

    def __init__(self, client: Client, vocab_size: int, special_ids: frozenset[int]) -> None:
        self._client, self._size = client, vocab_size
        self.special_ids = special_ids
        self._bytes: dict[int, bytes | None] = {}
        self._lock = threading.Lock()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text.

        Raises:
            YaieError: it cannot be encoded, or the server does not answer.
        """
        found = self._client.post_json("/tokenize", {"prompt": text, "add_special_tokens": add_special_tokens})
        return token_ids(found.get("tokens") if isinstance(found, dict) else None)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids.

        Raises:
            YaieError: something is not a token id, or the server does not answer.
        """
        kept = [i for i in ids if not (skip_special_tokens and i in self.special_ids)]
        found = self._client.post_json("/detokenize", {"tokens": kept})
        if not isinstance(found, dict) or not isinstance(found.get("prompt"), str):
            raise RemoteError(f"{self._client.url} gives no text for token ids")
        return str(found["prompt"]).encode("utf-8", "replace").decode()  # half of a character is no text

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes that a token adds to the text; None for an id that has none."""
        if not 0 <= token_id < self._size:
            return None
        with self._lock:
            if token_id not in self._bytes:
                self._fetch(token_id // PAGE * PAGE)
            return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        r"""Readable text of one token; bytes that are no whole character are shown as \\xNN."""
        return (self.token_bytes(token_id) or b"").decode("utf-8", "backslashreplace")

    def _fetch(self, start: int) -> None:
        ids = list(range(start, min(start + PAGE, self._size)))
        found = self._client.post_json("/detokenize", {"tokens": ids, "return_token_bytes": True})
        rows = found.get("token_bytes") if isinstance(found, dict) else None
        if not isinstance(rows, list) or len(rows) != len(ids):
            raise RemoteError(f"{self._client.url} does not tell the bytes of tokens")
        self._bytes.update(zip(ids, map(_raw, rows), strict=True))


def _raw(row: object) -> bytes | None:
    if row is None:
        return None
    if not isinstance(row, list) or len(row) > LONGEST_TOKEN or not all(type(b) is int and 0 <= b < 256 for b in row):
        raise RemoteError("the bytes of a token were expected")
    return bytes(row)
