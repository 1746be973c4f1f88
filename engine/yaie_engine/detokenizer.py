"""From the tokens of one choice to the text a reader sees, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from .params import SamplingParams
from .stop import StopMatcher
from .text_stream import open_stream
from .tokenizer import Tokenizer


class Detokenizer:
    """One per choice. What `push` and `flush` return joins to `text`, always.

    Held back: characters that are not complete, and text that may become a stop string. A stop string counts when it
    is complete after more than `min_tokens` tokens; it and all that follows is cut off, unless
    `include_stop_str_in_output`. With `skip_special_tokens` a stop string may still name a special token.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._params = params
        self._hidden = tokenizer.special_ids if params.skip_special_tokens else frozenset()
        self._special = tokenizer.special_ids
        self._stream = open_stream(tokenizer, prompt_token_ids, params.skip_special_tokens)
        self._matcher: StopMatcher | None = None
        if params.stop:
            specials = tokenizer.special_texts if params.skip_special_tokens else {}
            self._matcher = StopMatcher(params.stop, specials, params.include_stop_str_in_output)
        self._num_tokens = 0
        self._parts: list[str] = []

    @property
    def stop_reason(self) -> str | None:
        """The stop string that ended the text."""
        return None if self._matcher is None else self._matcher.found

    @property
    def text(self) -> str:
        """All text shown so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def push(self, token_id: int, *, is_end: bool = False) -> str:
        """Text that may be shown after this token.

        `is_end`: the token ended the choice. Its own text is shown only with `include_stop_str_in_output`, or when it
        is a special token and these are not skipped.
        """
        if self.stop_reason is not None:
            return ""
        self._num_tokens += 1
        if token_id in self._hidden:
            return self._show(self._hidden_token(token_id))
        if is_end and not (self._params.include_stop_str_in_output or token_id in self._special):
            return ""
        return self._show(self._match(self._stream.push(token_id)))

    def flush(self) -> str:
        """What was held back, at the end of the request. Nothing after a stop string."""
        if self.stop_reason is not None:
            return ""
        text = self._match(self._stream.flush())
        if self._matcher is not None:
            text += self._matcher.flush()
        return self._show(text)

    @property
    def _active(self) -> bool:
        return self._num_tokens > self._params.min_tokens

    def _match(self, text: str) -> str:
        return text if self._matcher is None else self._matcher.feed(text, self._active)

    def _hidden_token(self, token_id: int) -> str:
        if self._matcher is None or not self._matcher.knows(token_id):
            return ""
        # The text before the token is complete, or never will be.
        return self._match(self._stream.flush()) + self._matcher.feed_special(token_id, self._active)

    def _show(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text
