"""How many tokens a request used, and how many of them came from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

if TYPE_CHECKING:
    from yaie_engine import RequestOutput


class PromptDetails(TypedDict):
    cached_tokens: int
    reuse: str


class Usage(TypedDict):
    """`reuse` names where cached tokens came from: none, radix, host, store or state."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


def usage_of(outputs: Sequence[RequestOutput], generated: bool = True) -> Usage:
    """The sum over the prompts of a request."""
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    completion = sum(len(choice.token_ids) for output in outputs for choice in output.outputs) if generated else 0
    reused = (output.metrics.reuse for output in outputs if output.metrics.reuse != "none")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(output.num_cached_tokens for output in outputs),
            "reuse": next(reused, "none"),
        },
    }
