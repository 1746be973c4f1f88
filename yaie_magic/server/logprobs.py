"""Log-probabilities in the two forms of the OpenAI API."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from typing_extensions import TypedDict

from yaie_engine.outputs import Logprob, Logprobs
from yaie_engine.tokenizer import Tokenizer


class TokenLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int] | None


class ChosenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(TypedDict):
    content: list[ChosenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def chat_logprobs(tokenizer: Tokenizer, ids: Sequence[int], rows: Sequence[Logprobs], top: int) -> ChatLogprobs:
    """The chosen tokens with the `top` likeliest of each place."""
    content: list[ChosenLogprob] = []
    for token_id, row in zip(ids, rows, strict=True):
        best = sorted((item for item in row.items() if item[1].rank <= top), key=lambda item: item[1].rank)
        chosen = _token(tokenizer, token_id, row[token_id])
        content.append({**chosen, "top_logprobs": [_token(tokenizer, *item) for item in best]})
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokenizer: Tokenizer, ids: Sequence[int], rows: Sequence[Logprobs | None], offsets: Sequence[int]
) -> CompletionLogprobs:
    """The older form. The first token of an echoed prompt has no value."""
    return {
        "tokens": [tokenizer.token_text(token_id) for token_id in ids],
        "token_logprobs": [None if row is None else row[i].logprob for i, row in zip(ids, rows, strict=True)],
        "top_logprobs": [None if row is None else _by_text(row) for row in rows],
        "text_offset": list(offsets),
    }


class Offsets:
    """Where in the text each token begins. A token inside a character begins where the character does."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, start: int = 0) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = start

    def push(self, ids: Sequence[int]) -> list[int]:
        """The offsets of the next tokens."""
        found = []
        for token_id in ids:
            found.append(self._at)
            if token_id not in self._hidden:
                self._at += len(self._decoder.decode(self._tokenizer.token_bytes(token_id) or b""))
        return found


def prompt_logprobs(rows: Sequence[Logprobs | None]) -> list[dict[str, Any] | None]:
    """The form that vLLM gives them in."""
    return [None if row is None else {str(i): _plain(item) for i, item in row.items()} for row in rows]


def _plain(item: Logprob) -> dict[str, Any]:
    return {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.decoded_token}


def _token(tokenizer: Tokenizer, token_id: int, item: Logprob) -> TokenLogprob:
    raw = tokenizer.token_bytes(token_id)
    return {"token": item.decoded_token, "logprob": item.logprob, "bytes": None if raw is None else list(raw)}


def _by_text(row: Logprobs) -> dict[str, float]:
    """By likelihood; of two tokens with the same text the likelier one stays."""
    best: dict[str, float] = {}
    for item in sorted(row.values(), key=lambda item: item.rank):
        best.setdefault(item.decoded_token, item.logprob)
    return best
