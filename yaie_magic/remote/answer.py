"""One answer as it comes in chunks. A server is hostile input: what is not of the expected form is an error or left
out, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from yaie_engine.errors import RequestTimeout, YaieError
from yaie_engine.outputs import (
    CompletionOutput,
    FinishReason,
    Logprob,
    Logprobs,
    RequestMetrics,
    RequestOutput,
    Reuse,
    TokenCounts,
)

from .faults import RemoteError
from .figures import MOST_STEPS, count, seconds

Json = dict[str, Any]
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "abort": "cancelled",
    "error": "error",
}
_REUSES: tuple[Reuse, ...] = ("none", "radix", "host", "store", "state")


@dataclass(slots=True)
class ChoiceSoFar:
    """What has come of one choice. `chat`: its text comes as the delta of a message."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    rows: list[Logprobs] = field(default_factory=list)
    reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def output(self, index: int, rest: FinishReason | None, stop_reason: str | None) -> CompletionOutput:
        """The choice as it stands; `rest` is the reason where none has come."""
        chosen = [row[i].logprob for i, row in zip(self.token_ids, self.rows, strict=False) if i in row]
        whole = bool(self.rows) and len(chosen) == len(self.token_ids) == len(self.rows)
        return CompletionOutput(
            index=index,
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            cumulative_logprob=sum(chosen) if whole else None,
            logprobs=tuple(self.rows) if whole else None,
            finish_reason=self.reason or rest,
            stop_reason=self.stop_reason if self.reason else stop_reason,
        )


class Answer:
    """Gathers the chunks of one request with `n` choices."""

    def __init__(self, n: int) -> None:
        self.choices = [ChoiceSoFar() for _ in range(n)]
        self.request_id: str | None = None
        self.prompt_token_ids: list[int] = []
        self.prompt_rows: list[Logprobs | None] | None = None
        self.usage = TokenCounts()
        self.metrics: RequestMetrics | None = None

    def missing(self, done: bool) -> str:
        """What a stream lacks that has ended, in words; '' for nothing. `done`: the server said that it was the end."""
        begun = [each for each in self.choices if each.reason is not None or each.texts or each.token_ids]
        ended = all(each.reason is not None for each in begun)
        if begun and ended and len(begun) < len(self.choices):
            return f"gave {len(begun)} of {len(self.choices)} completions: it does not honour n"
        return "" if done or (begun and ended) else "broke off its answer; the text so far is kept"

    def take(self, chunk: Json) -> list[tuple[int, str]]:
        """Take in one chunk; gives the new text of each choice.

        Raises:
            RemoteError: it is not of the form of the OpenAI API.
        """
        ids = chunk.get("request_ids")
        own = _name(ids[0]) if isinstance(ids, list) and ids else None
        self.request_id = own or self.request_id or _name(chunk.get("id"))
        if chunk.get("prompt_token_ids") is not None:
            self.prompt_token_ids = token_ids(chunk["prompt_token_ids"])
        if isinstance(chunk.get("usage"), dict):
            self.usage = _counts(chunk["usage"])
        if isinstance(chunk.get("metrics"), list) and chunk["metrics"]:
            self.metrics = _metrics(chunk["metrics"][0])
        choices = chunk.get("choices", [])
        if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
            raise RemoteError("choices: a list of objects was expected")
        return [delta for each in choices for delta in self._choice(each)]

    def _choice(self, given: Json) -> list[tuple[int, str]]:
        index = given.get("index", 0)
        if count(index, len(self.choices) - 1) is None:
            raise RemoteError(f"a choice with an index that is none of 0 to {len(self.choices) - 1}")
        choice = self.choices[index]
        if given.get("prompt_token_ids") is not None:
            self.prompt_token_ids = token_ids(given["prompt_token_ids"])
        if given.get("prompt_logprobs") is not None:
            self.prompt_rows = _prompt_rows(given["prompt_logprobs"])
        if given.get("token_ids") is not None:
            choice.token_ids += token_ids(given["token_ids"])
        if given.get("token_logprobs") is not None:
            choice.rows += [row or {} for row in _prompt_rows(given["token_logprobs"])]
        self._end(choice, given)
        text = _text(given)
        if not text:
            return []
        choice.texts.append(text)
        return [(index, text)]

    def _end(self, choice: ChoiceSoFar, given: Json) -> None:
        reason = given.get("finish_reason")
        if not isinstance(reason, str) or not reason:
            return
        choice.reason = _REASONS.get(reason, "stop")
        stop = given.get("stop_reason")
        if isinstance(stop, str | int) and not isinstance(stop, bool):
            choice.stop_reason = stop
        elif reason not in _REASONS:
            choice.stop_reason = reason[:64]  # tool_calls, content_filter: how this server calls its end

    def output(
        self,
        request_id: str,
        prompt: str | None,
        rest: FinishReason | None,
        error: YaieError | None,
        seconds: RequestMetrics,
    ) -> RequestOutput:
        """The request as it stands; `rest` ends the choices that have not ended. `seconds` are the client's own times,
        where the server tells none."""
        stop_reason = "timeout" if isinstance(error, RequestTimeout) else None
        known = bool(self.prompt_token_ids) and all(each.token_ids or not each.texts for each in self.choices)
        return RequestOutput(
            request_id=self.request_id or request_id,
            prompt=prompt,
            prompt_token_ids=tuple(self.prompt_token_ids),
            outputs=tuple(choice.output(i, rest, stop_reason) for i, choice in enumerate(self.choices)),
            finished=rest is not None,
            num_cached_tokens=self.usage.cached or 0,
            prompt_logprobs=None if self.prompt_rows is None else tuple(self.prompt_rows),
            error=error,
            metrics=self.metrics or seconds,
            counts=None if known else self.usage,
        )


def token_ids(value: object) -> list[int]:
    """A list of token ids.

    Raises:
        RemoteError: it is something else.
    """
    if not isinstance(value, list) or not all(count(each) is not None for each in value):
        raise RemoteError("token ids were expected")
    return value


def _name(value: object) -> str | None:
    """A request's name, which is printed and looked for: visible ASCII characters."""
    return value if isinstance(value, str) and re.fullmatch(r"[!-~]{1,128}", value) else None


def _text(given: Json) -> str:
    """The new text, of either form. What a model thinks aloud, where a server keeps it apart, is no part of it."""
    found = given.get("text")
    if found is None:
        part = given.get("delta") or given.get("message")
        found = part.get("content") if isinstance(part, dict) else None
    if found is None:
        return ""
    if not isinstance(found, str):
        raise RemoteError("a text was expected")
    return found.encode("utf-8", "replace").decode()  # half of a character, as JSON can write it, is no text


def _counts(given: Json) -> TokenCounts:
    details = given.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return TokenCounts(count(given.get("prompt_tokens")), count(given.get("completion_tokens")), cached)


def _metrics(given: object) -> RequestMetrics | None:
    if not isinstance(given, dict):
        return None
    reuse: Reuse = next((each for each in _REUSES if each == given.get("reuse")), "none")
    return RequestMetrics(
        queue_s=seconds(given.get("queue_s")) or 0.0,
        ttft_s=seconds(given.get("ttft_s")),
        tpot_s=seconds(given.get("tpot_s")),
        total_s=seconds(given.get("total_s")) or 0.0,
        reuse=reuse,
        num_computed_tokens=count(given.get("num_computed_tokens")) or 0,
        num_preemptions=count(given.get("num_preemptions")) or 0,
        first_step=count(given.get("first_step"), MOST_STEPS),
        last_step=count(given.get("last_step"), MOST_STEPS),
    )


def _prompt_rows(value: object) -> list[Logprobs | None]:
    if not isinstance(value, list):
        raise RemoteError("log-probabilities were expected")
    return [None if row is None else _row(row) for row in value]


def _row(given: object) -> Logprobs:
    if not isinstance(given, dict):
        raise RemoteError("log-probabilities were expected")
    found: Logprobs = {}
    for key, item in given.items():
        if not (key.isdecimal() and len(key) <= 10 and isinstance(item, dict)):
            raise RemoteError("log-probabilities were expected")
        value, rank, text = item.get("logprob"), item.get("rank"), item.get("decoded_token")
        if isinstance(value, bool) or not isinstance(value, int | float) or type(rank) is not int:
            raise RemoteError("log-probabilities were expected")
        if not -1e30 < value < 1e30:  # NaN and infinity, which JSON has not
            raise RemoteError("log-probabilities were expected")
        found[int(key)] = Logprob(float(value), rank, text if isinstance(text, str) else "")
    return found
