"""From the fields of a body to the parameters of a request, and to its prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_engine.chat import TEMPLATE_FIELDS
from yaie_engine.errors import RequestError
from yaie_engine.limits import resolve_max_tokens
from yaie_engine.params import SamplingParams
from yaie_engine.prompts import EncodedText, encode_prompt

from .errors import ApiError, bad_value

if TYPE_CHECKING:
    from yaie_engine import LLM, Generation

    from .config import ServerConfig
    from .job import Job

SMALLEST_TEMPERATURE = 1.1754943508222875e-38  # of the float32 numbers that keep their precision
MOST_SEQUENCES = 4096


def sampling(llm: LLM, body: dict[str, Any], **own: Any) -> SamplingParams:
    """Sampling parameters of a body over the engine's defaults; `own` wins.

    Raises:
        ApiError: a value is out of range.
    """
    given = {name: value for name, value in body.items() if name in SamplingParams.model_fields}
    temperature = given.get("temperature")
    if temperature is not None and 0 < temperature < SMALLEST_TEMPERATURE:
        raise ApiError(
            400,
            f"temperature={temperature}: 0 for greedy, or at least {SMALLEST_TEMPERATURE:.3g}",
            "invalid_value",
            "temperature",
        )
    try:
        return SamplingParams(**{**llm.config.sampling_defaults, **given, **own})
    except RequestError as error:
        raise bad_value(error) from None


def as_prompts(given: Any, config: ServerConfig, name: str = "prompt") -> list[str | list[int]]:
    """The prompts of a body: one or many, as text or token ids.

    Raises:
        ApiError: there is none, one is empty, too long, or there are too many.
    """
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    prompts: list[str | list[int]] = [given] if single else given
    if not prompts:
        raise ApiError(400, f"{name}: at least one prompt is needed", "invalid_value", name)
    if len(prompts) > config.max_prompts:
        raise ApiError(400, f"{name}: {len(prompts)} prompts, at most {config.max_prompts}", "invalid_value", name)
    for index, prompt in enumerate(prompts):
        where = name if single else f"{name}[{index}]"
        if not prompt:
            raise ApiError(400, f"{where}: the prompt is empty", "invalid_value", name)
        if len(prompt) > config.max_prompt_chars:
            text = f"{where}: {len(prompt)} characters, at most {config.max_prompt_chars}"
            raise ApiError(400, text, "context_length_exceeded", name)
    return prompts


def template_values(body: dict[str, Any]) -> dict[str, Any]:
    """What a body gives to the chat template.

    Raises:
        ApiError: a variable is not one of those that a request may set, or a tool call is demanded.
    """
    values = dict(body.get("chat_template_kwargs", {}))
    for name in values:
        if name not in (*TEMPLATE_FIELDS, "add_generation_prompt"):
            text = f"chat_template_kwargs: only {', '.join(TEMPLATE_FIELDS)} may be set"
            raise ApiError(400, text, "invalid_value", "chat_template_kwargs")
    if not isinstance(values.get("add_generation_prompt", True), bool):
        raise ApiError(400, "add_generation_prompt: a truth value is needed", "invalid_value", "chat_template_kwargs")
    for name in ("tools", "documents", "reasoning_effort", "add_generation_prompt"):
        if name in body:
            values[name] = body[name]
    choice = body.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise ApiError(400, "tool_choice: only auto and none are supported", "unsupported_field", "tool_choice")
    if choice == "none":
        values.pop("tools", None)
    return values


def chat_prompt(llm: LLM, body: dict[str, Any], values: dict[str, Any], config: ServerConfig) -> list[int]:
    """Token ids of a conversation. Slow: templates run in a process of their own.

    Raises:
        ApiError: there are too many or too long messages.
        RequestError: the messages are malformed.
    """
    messages = body["messages"]
    if len(messages) > config.max_messages:
        text = f"messages: {len(messages)} messages, at most {config.max_messages}"
        raise ApiError(400, text, "invalid_value", "messages")
    if sum(_length(message) for message in messages) > config.max_prompt_chars:
        text = f"messages: more than {config.max_prompt_chars} characters"
        raise ApiError(400, text, "context_length_exceeded", "messages")
    return llm.chat_ids(messages, **values)


def encode_all(llm: LLM, prompts: list[str | list[int]], add_special_tokens: bool = True) -> list[list[int]]:
    """Token ids of the prompts; those of a text keep it, for the history. Slow."""
    return [_encoded(llm, prompt, add_special_tokens) for prompt in prompts]


def _encoded(llm: LLM, prompt: str | list[int], add_special_tokens: bool) -> list[int]:
    plain = llm.tokenizer.encode(prompt, False) if isinstance(prompt, str) and not add_special_tokens else prompt
    ids = encode_prompt(llm.tokenizer, plain, llm.vocab_size)
    return EncodedText(prompt, ids) if isinstance(prompt, str) else ids


def submit_all(job: Job, prompts: list[list[int]], params: SamplingParams) -> list[Generation]:
    """Queue all prompts of a job or none.

    Raises:
        ApiError: a prompt and its output do not fit into the context.
        YaieError: the engine refuses one of them.
    """
    if len(prompts) * params.n > MOST_SEQUENCES:
        raise ApiError(400, f"n={params.n}: {len(prompts)} prompts times n, at most {MOST_SEQUENCES}", param="n")
    for ids in prompts:
        try:
            resolve_max_tokens(params, len(ids), job.llm.max_model_len)
        except RequestError as error:
            refusal = bad_value(error)
            raise ApiError(400, refusal.message, "context_length_exceeded", refusal.param) from None
    queued: list[Generation] = []
    try:
        for ids in prompts:
            queued.append(job.llm.submit(ids, params, tenant=job.tenant))
    except BaseException:
        for generation in queued:
            generation.cancel()
        raise
    return queued


def _length(message: dict[str, Any]) -> int:
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    return sum(len(part if isinstance(part, str) else part["text"]) for part in content or ())
