"""Names in a request that we do not know, and those we know but cannot honour."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ApiError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
MOST_NAMED = 16
NEAR = 2
HARMLESS = (
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "mm_processor_kwargs",
    "include_reasoning",
)
"""Fields of OpenAI and vLLM that do not change the text of the answer."""
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "stream_options": (),
    "echo": (False,),
    "add_special_tokens": (False,),
    "max_completion_tokens": (),
    "top_logprobs": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "documents": ([],),
    "chat_template_kwargs": ({},),
    "reasoning_effort": (),
    "best_of": (1,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "moderation": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "truncate_prompt_tokens": (),
    "spaces_between_special_tokens": (True,),
    "detokenize": (True,),
    "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,),
    "structured": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "logits_processors": (),
    "prompt_embeds": (),
    "kv_transfer_params": (),
    "vllm_xargs": (),
    "thinking_token_budget": (),
    "logprob_token_ids": (),
    "repetition_detection": (),
}
"""Fields of OpenAI and vLLM that change the answer, with the values that ask for what we do anyway (null always is). A
route that takes one of them has it among its own fields, which go first."""


def check_fields(given: Mapping[str, Any], known: Iterable[str], strict: bool) -> list[str]:
    """The names that have no effect, for the answer's header.

    Raises:
        ApiError: a name is most likely mistyped, asks for what we cannot do, or is unknown and `strict`.
    """
    fields = frozenset(known)
    ignored = []
    for name, value in given.items():
        if name in fields:
            continue
        if name in UNSUPPORTED:
            _refuse_unless_default(name, value)
        elif name in HARMLESS:
            ignored.append(name)
        else:
            _check_unknown(name, [*fields, *HARMLESS, *UNSUPPORTED], strict)
            ignored.append(name)
    return ignored


def shown(names: Iterable[str]) -> list[str]:
    """Those of the names that may stand in a header or a log, at most 16."""
    return [name for name in dict.fromkeys(names) if NAME.match(name)][:MOST_NAMED]


def _refuse_unless_default(name: str, value: Any) -> None:
    if value is not None and not any(type(value) is type(same) and value == same for same in UNSUPPORTED[name]):
        raise ApiError(400, f"{name} is not supported by this server; leave it out", "unsupported_field", name)


def _check_unknown(name: str, known: Iterable[str], strict: bool) -> None:
    label = repr(name) if NAME.match(name) else "with characters that no field name has"
    near = min(((_distance(name, other), other) for other in known), default=(NEAR + 1, ""))
    if near[0] <= NEAR:
        param = name if NAME.match(name) else None
        raise ApiError(400, f"unknown field {label}; did you mean {near[1]!r}?", "unknown_field", param)
    if strict:
        raise ApiError(400, f"unknown field {label}", "unknown_field", name if NAME.match(name) else None)


def _distance(left: str, right: str) -> int:
    """Edits (insert, drop, replace a letter) between two names; more than 2 is said as 3."""
    if abs(len(left) - len(right)) > NEAR:
        return NEAR + 1
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row = row, [i]
        for j, b in enumerate(right, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
        if min(row) > NEAR:
            return NEAR + 1
    return min(row[-1], NEAR + 1)
