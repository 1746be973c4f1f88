"""The bodies that the routes take, as pydantic models: each field with its type and bounds, null for "not given"."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from yaie_engine.messages import ROLES
from yaie_engine.params import Float, Int, SamplingParams
from yaie_engine.validation import allowed_range

from .errors import ApiError

MOST_IDS = 4096


def _token_id(key: object) -> object:
    """JSON knows only text as a key."""
    return int(key) if isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,12}", key) else key


TokenKey = Annotated[int, BeforeValidator(_token_id)]
Ids = list[Int]
Prompt = str | Ids
CONFIG = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class Part(BaseModel):
    """A piece of a message's content."""

    model_config = CONFIG
    type: Literal["text", "input_text", "output_text"]
    text: str


class Function(BaseModel):
    """What a tool call calls."""

    model_config = CONFIG
    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(BaseModel):
    """A tool call of an earlier answer."""

    model_config = CONFIG
    id: str | None = None
    type: Literal["function"] | None = None
    function: Function


class Message(BaseModel):
    """One message of a conversation."""

    model_config = CONFIG
    role: Literal[ROLES]  # type: ignore[valid-type]
    content: str | list[str | Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    model_config = CONFIG
    include_usage: bool | None = None


def _without_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    rest = [part for part in get_args(annotation) if part is not type(None)]
    return rest[0] if len(rest) == 1 and type(None) in get_args(annotation) else annotation


def _sampling_fields(*without: str) -> dict[str, Any]:
    """The fields of SamplingParams with their bounds, each of which may be null."""
    own: dict[str, Any] = {
        "stop": (str | list[str] | None, None),
        "logit_bias": (Annotated[dict[TokenKey, Float], Field(max_length=MOST_IDS)] | None, None),
        "stop_token_ids": (Annotated[Ids, Field(max_length=MOST_IDS)] | None, None),
    }
    fields = {}
    for name, field in SamplingParams.model_fields.items():
        if name in without or name == "structured":
            continue
        inner = _without_none(field.annotation)  # so that a bound is one of the number, in the published schema, too
        bounded: Any = Annotated[(inner, *field.metadata)] if field.metadata else inner
        fields[name] = own.get(name, (bounded | None, Field(None, description=field.description)))
    return fields


_OPENAI: dict[str, Any] = {
    "model": (str | None, None),
    "stream": (bool | None, None),
    "stream_options": (StreamOptions | None, None),
    "return_token_ids": (bool | None, None),
}
_CHAT: dict[str, Any] = {
    "messages": (Annotated[list[Message], Field(min_length=1)], ...),
    "max_completion_tokens": (Annotated[int, Field(ge=1, le=2**31 - 1)] | None, None),
    "logprobs": (bool | None, None),
    "top_logprobs": (Annotated[int, Field(ge=0, le=20)] | None, None),
    "tools": (list[dict[str, Any]] | None, None),
    "tool_choice": (str | dict[str, Any] | None, None),
    "documents": (list[dict[str, Any]] | None, None),
    "reasoning_effort": (str | None, None),
    "chat_template_kwargs": (dict[str, Any] | None, None),
    "add_generation_prompt": (bool | None, None),
}
_COMPLETION: dict[str, Any] = {
    "prompt": (str | Ids | list[str] | list[Ids], ...),
    "max_tokens": (Annotated[int, Field(ge=0, le=2**31 - 1)] | None, None),
    "echo": (bool | None, None),
    "add_special_tokens": (bool | None, None),
    "return_details": (bool | None, None),
}
_GENERATE: dict[str, Any] = {"prompt": (Prompt, ...), "stream": (bool | None, None)}
_BATCH: dict[str, Any] = {"prompts": (Annotated[list[Prompt], Field(min_length=1)], ...)}

ChatBody = create_model("ChatBody", __config__=CONFIG, **{**_OPENAI, **_sampling_fields("logprobs"), **_CHAT})
CompletionBody = create_model("CompletionBody", __config__=CONFIG, **{**_OPENAI, **_sampling_fields(), **_COMPLETION})
GenerateBody = create_model("GenerateBody", __config__=CONFIG, **{**_GENERATE, **_sampling_fields()})
BatchBody = create_model("BatchBody", __config__=CONFIG, **{**_BATCH, **_sampling_fields()})


class TokenizeBody(BaseModel):
    """A text, or a conversation as the chat template writes it."""

    model_config = CONFIG
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(BaseModel):
    """Token ids."""

    model_config = CONFIG
    model: str | None = None
    tokens: Annotated[Ids, Field(max_length=10**6)]
    return_token_bytes: bool | None = None


_NESTED = frozenset(name for part in (Message, Part, ToolCall, Function, StreamOptions) for name in part.model_fields)


def checked(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a body that were given and are not null.

    Raises:
        ApiError: one is missing, of a wrong type or out of range. Text of the request is never repeated.
    """
    try:
        body = model.model_validate(given)
    except ValidationError as error:
        raise _bad_field(error, model) from None
    return body.model_dump(exclude_unset=True, exclude_none=True)


def _bad_field(error: ValidationError, model: type[BaseModel]) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    # Names of types and keys of mappings are left out: those may be text of the request.
    inner = [str(part) for part in first["loc"][1:] if isinstance(part, int) or part in _NESTED]
    where = ".".join([field, *inner]) or "body"
    reason = first["msg"].removeprefix("Value error, ")
    value = first["input"]
    said = f"={value!r}" if isinstance(value, bool | int | float) and len(repr(value)) <= 40 else ""
    allowed = allowed_range(SamplingParams, field) if field in SamplingParams.model_fields else ""
    text = f"{where}{said}: {reason}" + (f" (allowed: {allowed})" if allowed else "")
    code = "missing_field" if first["type"] == "missing" else "invalid_value"
    return ApiError(400, text, code, field or None)
