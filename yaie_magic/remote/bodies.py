"""What is sent: a prompt or a conversation with the parameters that were given, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_engine.limits import DEFAULT_MAX_TOKENS

from .request import Asked

if TYPE_CHECKING:
    from yaie_engine.params import SamplingParams

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_OFF_WIRE = ("timeout", "structured")


def given_params(params: SamplingParams) -> dict[str, Any]:
    """The parameters that somebody has set, as JSON."""
    given = params.model_dump(include=params.model_fields_set, exclude_none=True)
    if "logit_bias" in given:
        given["logit_bias"] = {str(key): value for key, value in given["logit_bias"].items()}
    return {name: value for name, value in given.items() if name not in _OFF_WIRE}


def own_body(model: str, prompt: str | list[int], params: SamplingParams, user: str | None = None) -> Asked:
    """For our own server, which also tells ids and figures, and keeps the time itself; `user` is whose share it is."""
    body = {
        "model": model,
        "prompt": prompt,
        **_streaming(),
        "return_token_ids": True,
        "return_details": True,
        **given_params(params),
    }
    if params.timeout is not None:
        body["timeout"] = params.timeout
    if user is not None:
        body["user"] = user
    return _asked(COMPLETIONS, body, prompt, params, None)


def text_body(model: str, prompt: str | list[int], params: SamplingParams) -> Asked:
    """For the text completions of any server."""
    return _asked(
        COMPLETIONS,
        {"model": model, "prompt": prompt, **_streaming(), **given_params(params)},
        prompt,
        params,
        params.timeout,
    )


def chat_body(model: str, messages: list[dict[str, Any]], params: SamplingParams, **template: Any) -> Asked:
    """For the chat completions of any server; `template` goes to the chat template, where a server knows of that."""
    body = {"model": model, "messages": messages, **_streaming(), **given_params(params)}
    if "logprobs" in body:
        body["top_logprobs"], body["logprobs"] = body["logprobs"], True
    if template:
        body["chat_template_kwargs"] = template
    last = messages[-1].get("content") if messages else None
    return _asked(CHAT, body, last if isinstance(last, str) else "", params, params.timeout)


def _streaming() -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}}


def _asked(
    path: str, body: dict[str, Any], prompt: str | list[int], params: SamplingParams, timeout: float | None
) -> Asked:
    text, ids = (prompt, ()) if isinstance(prompt, str) else (None, tuple(prompt))
    return Asked(path, body, text, ids, params.n, params.max_tokens or DEFAULT_MAX_TOKENS, timeout)
