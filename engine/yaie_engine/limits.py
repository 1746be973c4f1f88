"""How many tokens a request may generate, from what it asks for and the room the context leaves."""

from __future__ import annotations

from .errors import CapacityError, RequestError
from .params import SamplingParams

DEFAULT_MAX_TOKENS = 256


def resolve_max_tokens(params: SamplingParams, num_prompt_tokens: int, max_model_len: int) -> int:
    """Most tokens to generate: `params.max_tokens`, or by default the room left, at most 256 (or min_tokens if more).

    Raises:
        RequestError: the prompt is empty, or max_tokens or min_tokens is over the room left.
        CapacityError: the prompt alone fills the context.
    """
    if num_prompt_tokens < 1:
        raise RequestError("the prompt is empty; at least one token is needed")
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise CapacityError(
            f"the prompt has {num_prompt_tokens} tokens, max_model_len is {max_model_len}: "
            f"at most {max_model_len - 1} prompt tokens leave room for one more"
        )
    for field, value in (("max_tokens", params.max_tokens), ("min_tokens", params.min_tokens)):
        if value is not None and value > room:
            raise RequestError(
                f"SamplingParams: {field}={value}: the prompt of {num_prompt_tokens} tokens leaves room for "
                f"{room} in max_model_len {max_model_len}"
            )
    if params.max_tokens is not None:
        return params.max_tokens
    return min(max(DEFAULT_MAX_TOKENS, params.min_tokens), room)
