"""Turns tokens into text one by one, so that the pieces join to exactly what decoding all of them at once gives.

A character whose bytes are spread over tokens is held back until it is complete. Work per token does not grow with
the text. `WindowStream` follows the prefix and read offsets of text-generation-inference and vLLM.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from .tokenizer import Tokenizer

_BROKEN = "\ufffd"
_LONGEST_CHARACTER = 4
_PATIENCE = 16
"""Tokens that may end in U+FFFD before it is taken as the model's own text: a character has at most 4 bytes."""
_TAIL = 4
"""Visible prompt tokens that are decoded in front of the output, so that its first space is right."""
_WIDEST = 64


class TextStream(Protocol):
    """What `push` and `flush` return joins to the text of the pushed tokens, in the context of the prompt."""

    def push(self, token_id: int) -> str:
        """Text that is certain now."""

    def flush(self) -> str:
        """Text that was held back, as it stands. More tokens may follow."""


def open_stream(tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skip_special_tokens: bool) -> TextStream:
    """The stream that fits the tokenizer. The prompt gives context only; none of its text comes out."""
    hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
    if tokenizer.byte_level:
        return ByteStream(tokenizer, prompt_token_ids, hidden)
    return WindowStream(tokenizer, prompt_token_ids, hidden)


class ByteStream:
    """For byte-level vocabularies: the text is the UTF-8 decoding of the tokens' bytes."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(self._tail(prompt_token_ids))
        self._prompt_broke_off = bool(self._decoder.getstate()[0])

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        return self._own(self._decoder.decode(self._tokenizer.token_bytes(token_id) or b""))

    def flush(self) -> str:
        return self._own(self._decoder.decode(b"", final=True))

    def _tail(self, prompt_token_ids: Sequence[int]) -> bytes:
        """The prompt's last bytes: enough to know whether it ends inside a character."""
        tail = b""
        for token_id in reversed(prompt_token_ids):
            if len(tail) >= _LONGEST_CHARACTER:
                break
            if token_id not in self._hidden:
                tail = (self._tokenizer.token_bytes(token_id) or b"") + tail
        return tail

    def _own(self, text: str) -> str:
        """Drop the mark of a character that the prompt began and the output did not complete."""
        if self._prompt_broke_off and text:
            self._prompt_broke_off = False
            return text.removeprefix(_BROKEN)
        return text


class WindowStream:
    """For all other vocabularies: decodes a short window with and without the new tokens and returns the difference.

    The window starts with visible tokens that were shown already, so that decoders which strip the first space do so
    there. Raw byte tokens are held back until another token follows: a decoder judges a run of them as a whole.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._ids = self._tail(prompt_token_ids)
        self._num_shown = len(self._ids)
        self._shown = self._decode(self._ids)

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        self._ids.append(token_id)
        if self._tokenizer.is_byte_token(token_id):
            return ""
        text = self._decode(self._ids)
        if text.endswith(_BROKEN) and len(self._ids) - self._num_shown < _PATIENCE:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        return self._advance(self._decode(self._ids)) if len(self._ids) > self._num_shown else ""

    def _advance(self, text: str) -> str:
        """Show `text` of the window; its new tokens become the context of the next ones."""
        new = text.removeprefix(self._shown)
        if not text.startswith(self._shown):
            new = text[_common(text, self._shown) :]
        if new or len(self._ids) > _WIDEST:
            self._ids = self._ids[self._num_shown :]
            text = self._decode(self._ids)
        self._num_shown, self._shown = len(self._ids), text
        return new

    def _tail(self, prompt_token_ids: Sequence[int]) -> list[int]:
        """The last visible prompt tokens that have text, from the start of a run of byte tokens."""
        tail: list[int] = []
        wanted = _TAIL
        for token_id in reversed(prompt_token_ids):
            if token_id in self._hidden:
                continue
            tail.append(token_id)
            if len(tail) >= wanted and not self._tokenizer.is_byte_token(token_id):
                if self._decode(tail[::-1]):
                    break
                wanted = 2 * len(tail)
        return tail[::-1]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def _common(left: str, right: str) -> int:
    """Length of the common prefix."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
