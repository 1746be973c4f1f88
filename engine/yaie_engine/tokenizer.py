"""One tokenizer for all threads: text to ids, ids to text, and the text or bytes of a single token."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from .byte_alphabet import token_to_bytes
from .errors import RequestError
from .panics import unless_foreign

_METASPACE = "▁"


class Tokenizer:
    """Wraps a tokenizer of transformers.

    Where it is backed by the `tokenizers` library, that library is called directly: transformers changes shared
    truncation settings on every call, which is not safe with several threads. Other tokenizers are called under a lock.
    The wrapped tokenizer keeps its settings.
    Text is never "cleaned up": what `decode` gives is what the tokens say.

    Attributes:
        hf: the tokenizer of transformers.
        num_tokens: ids from here on have no text; added tokens are counted.
        special_ids: ids that `skip_special_tokens` leaves out.
        special_texts: their texts, with the id of each.
        byte_level: whether text is exactly the UTF-8 of the tokens' bytes (GPT-2 style byte-level BPE).
    """

    def __init__(self, hf: Any) -> None:
        self.hf = hf
        self._lock = threading.Lock()
        self._backend = getattr(hf, "backend_tokenizer", None)
        added = hf.added_tokens_decoder
        self._added = {token_id: str(token) for token_id, token in added.items()}
        special = {token_id for token_id, token in added.items() if token.special}
        if self._backend is None:
            special |= set(hf.all_special_ids)
        # Ids may have gaps, so the number of entries is not enough.
        self.num_tokens = 1 + max((*hf.get_vocab().values(), *added), default=-1)
        self.special_ids = frozenset(special)
        self.special_texts = {self._entry(i): i for i in sorted(special) if self._entry(i)}
        self.eos_token_id: int | None = hf.eos_token_id
        decoder = self._decoder()
        self.byte_level = _is_byte_level(decoder)
        self._metaspace = self._backend is None or _METASPACE in json.dumps(decoder, ensure_ascii=False)
        self._raw_bytes = {} if self.byte_level else self._find_raw_bytes()
        self._texts: dict[int, str] = {}
        self._bytes: dict[int, bytes | None] = {}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`.

        Raises:
            RequestError: not a string, a lone surrogate, or a text that the vocabulary cannot express.
        """
        if not isinstance(text, str):
            raise RequestError(f"text={type(text).__name__}: a string is needed")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise RequestError(f"text: character {error.start} (U+{code:04X}) is a lone surrogate") from None
        try:
            if self._backend is not None and self._backend.truncation is None and self._backend.padding is None:
                return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
            # Someone asked transformers for truncation; the setting stays until the next call, which is this one.
            with self._lock:
                return list(self.hf.encode(text, add_special_tokens=add_special_tokens))
        except BaseException as error:  # the tokenizers library raises plain Exception, and panics
            raise _failure("encode this text", error) from error

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`; incomplete or invalid UTF-8 becomes U+FFFD.

        Raises:
            RequestError: something is not a token id, or the tokenizer cannot decode these.
        """
        try:
            if self._backend is not None:
                return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))
            with self._lock:
                return str(
                    self.hf.decode(
                        list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
                    )
                )
        except (OverflowError, TypeError, ValueError, IndexError) as error:
            raise RequestError(f"token ids from 0 to {self.num_tokens - 1} are needed: {error}") from error
        except BaseException as error:  # as above
            raise _failure("decode these token ids", error) from error

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes that a token adds to the text; None for an id that has none. Special tokens give their name."""
        if token_id not in self._bytes:
            self._bytes[token_id] = self._find_bytes(token_id)
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        r"""Readable text of one token; bytes that are no whole character are shown as \xNN."""
        text = self._texts.get(token_id)
        if text is None:
            text = (self.token_bytes(token_id) or b"").decode("utf-8", "backslashreplace")
            self._texts[token_id] = text
        return text

    def is_byte_token(self, token_id: int) -> bool:
        """Whether the token is one raw byte, `<0xNN>`, whose meaning depends on its neighbours."""
        return token_id in self._raw_bytes

    def _find_bytes(self, token_id: int) -> bytes | None:
        token = self._entry(token_id)
        if not token:
            return None
        if self.byte_level:
            return token_to_bytes(token)
        if token_id in self._raw_bytes:
            return self._raw_bytes[token_id]
        if token_id in self._added:
            return token.encode("utf-8", "replace")
        return (token.replace(_METASPACE, " ") if self._metaspace else token).encode("utf-8", "replace")

    def _entry(self, token_id: int) -> str:
        """The vocabulary entry as it is written there; '' when there is none."""
        if token_id in self._added:
            return self._added[token_id]
        if token_id < 0 or token_id >= self.num_tokens:
            return ""
        if self._backend is not None:
            return self._backend.id_to_token(token_id) or ""
        with self._lock:
            return str(self.hf.convert_ids_to_tokens(token_id) or "")

    def _find_raw_bytes(self) -> dict[int, bytes]:
        """The entries `<0x00>` to `<0xFF>` of vocabularies with byte fallback."""
        find = self.hf.convert_tokens_to_ids if self._backend is None else self._backend.token_to_id
        found = {find(f"<0x{byte:02X}>"): bytes([byte]) for byte in range(256)}
        unknown = (None, getattr(self.hf, "unk_token_id", None))
        return {token_id: byte for token_id, byte in found.items() if token_id not in unknown}

    def _decoder(self) -> Any:
        decoder = None if self._backend is None else self._backend.decoder
        return None if decoder is None else json.loads(decoder.__getstate__())


def _failure(what: str, error: BaseException) -> RequestError:
    lines = str(unless_foreign(error)).strip().splitlines()
    return RequestError(f"the tokenizer cannot {what}: {(lines or [type(error).__name__])[0][:200]}")


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        parts = decoder.get("decoders", [])
        return len(parts) == 1 and _is_byte_level(parts[0])
    return decoder.get("type") == "ByteLevel"
