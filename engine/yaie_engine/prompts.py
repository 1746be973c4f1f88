"""Checks prompts before anything is queued: strings or token ids become lists of valid ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import RequestError
from .params import SamplingParams
from .tokenizer import Tokenizer

Prompt = str | Sequence[int]


class EncodedText(list[int]):
    """The token ids of a text, with the text: a prompt that was encoded already, and is called by its text still."""

    def __init__(self, text: str, token_ids: Sequence[int]) -> None:
        super().__init__(token_ids)
        self.text = text


def text_of(prompt: Prompt) -> str | None:
    """The text of a prompt, where it was given as one."""
    return prompt if isinstance(prompt, str) else prompt.text if isinstance(prompt, EncodedText) else None


def split_prompts(prompts: Any) -> list[Prompt]:
    """`str | list[str] | list[int] | list[list[int]]` as a list of prompts.

    Raises:
        RequestError: there is no prompt, or one of another type.
    """
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, list | tuple):
        raise RequestError(f"prompts={type(prompts).__name__}: a string, a list of strings, or (lists of) token ids")
    if not prompts:
        raise RequestError("prompts=[]: at least one prompt is needed")
    if all(isinstance(item, int) for item in prompts):
        return [list(prompts)]
    return list(prompts)


def split_params(params: Any, count: int) -> list[SamplingParams]:
    """One object for all prompts, or a list with one for each."""
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, list | tuple) or not all(isinstance(item, SamplingParams) for item in params):
        raise RequestError(f"params={type(params).__name__}: SamplingParams, or a list of them")
    if len(params) != count:
        raise RequestError(f"params: {len(params)} sampling parameters for {count} prompts")
    return list(params)


def encode_prompt(tokenizer: Tokenizer, prompt: Any, vocab_size: int) -> list[int]:
    """Token ids of a prompt.

    Raises:
        RequestError: it is empty, or an id is not an integer in [0, vocab_size).
    """
    if isinstance(prompt, str):
        token_ids = tokenizer.encode(prompt)
        if not token_ids:
            raise RequestError(f"prompt={prompt!r}: the prompt is empty")
        return token_ids
    if not isinstance(prompt, list | tuple):
        raise RequestError(f"prompt={type(prompt).__name__}: a string or a list of token ids is needed")
    if not prompt:
        raise RequestError("prompt=[]: the prompt is empty")
    return check_ids("prompt", prompt, vocab_size)


def check_ids(name: str, token_ids: Sequence[Any], vocab_size: int) -> list[int]:
    """A list of ids in [0, vocab_size), or a RequestError that names the first that is not."""
    if set(map(type, token_ids)) == {int} and min(token_ids) >= 0 and max(token_ids) < vocab_size:
        return list(token_ids)  # of the usual prompt, long as it may be, nothing is looked at one by one in Python
    for position, token_id in enumerate(token_ids):
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise RequestError(f"{name}[{position}]={token_id!r}: a token id from 0 to {vocab_size - 1} is needed")
    return list(token_ids)
