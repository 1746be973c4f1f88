"""From a conversation to prompt ids, by the model's chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigError, RequestError
from .messages import Message, check_messages
from .template_process import render_template
from .tokenizer import Tokenizer
from .validation import did_you_mean

TEMPLATE_FIELDS = (
    "tools",
    "documents",
    "enable_thinking",
    "thinking",
    "thinking_budget",
    "reasoning_effort",
    "builtin_tools",
    "custom_tools",
    "tools_in_user_message",
    "date_string",
    "model_identity",
)
"""Variables a request may give to the template. Never the template itself, nor what the engine sets."""
_JINJA = re.compile(r"\{[{%#]")
_MAX_TEMPLATE = 2**20


def render_chat(
    tokenizer: Tokenizer,
    messages: Any,
    *,
    chat_template: str | None = None,
    add_generation_prompt: bool = True,
    **template: Any,
) -> list[int]:
    """Prompt ids of a conversation; arguments and errors as `render_text`."""
    text, from_template = render_text(
        tokenizer, messages, chat_template=chat_template, add_generation_prompt=add_generation_prompt, **template
    )
    # A template writes the special tokens itself; the plain form does not.
    return tokenizer.encode(text, add_special_tokens=not from_template)


def render_text(
    tokenizer: Tokenizer,
    messages: Any,
    *,
    chat_template: str | None = None,
    add_generation_prompt: bool = True,
    **template: Any,
) -> tuple[str, bool]:
    """Prompt text of a conversation, and whether a template made it.

    The template is `chat_template` (Jinja text or a file), else the tokenizer's. A model without one gets lines of
    "role: content" and a last line "assistant:" (see `plain_text`). Templates run in a helper process with a deadline.

    Raises:
        RequestError: messages or template variables are wrong, or the template refuses them.
        ConfigError: the template cannot be read, has errors, is not safe, or takes too long.
    """
    conversation = check_messages(messages)
    _check_variables(template)
    source = load_template(chat_template) if chat_template is not None else own_template(tokenizer, template)
    if source is None:
        if template.get("tools"):
            raise RequestError("tools: this model has no chat template, so it cannot be told about tools")
        return plain_text(conversation, add_generation_prompt), False
    variables = {
        **_special_tokens(tokenizer),
        "tools": None,
        "documents": None,
        **template,
        "messages": _roles_for(source, conversation),
        "add_generation_prompt": bool(add_generation_prompt),
    }
    return render_template(source, variables), True


def plain_text(messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    r"""The form for base models without a template.

    >>> plain_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    'system: Be brief.\nuser: Hi\nassistant:'
    """
    lines = [f"{message['role']}: {message['content']}" for message in messages]
    return "\n".join([*lines, "assistant:"] if add_generation_prompt else lines)


def load_template(option: str) -> str:
    """Template text from the `chat_template` option: itself when it holds Jinja marks or several lines, else a file.

    Raises:
        ConfigError: no such file, not text, or over 1 MiB.
    """
    if _JINJA.search(option) or "\n" in option:
        text = option
    else:
        try:
            with Path(option).expanduser().open("rb") as file:
                text = file.read(_MAX_TEMPLATE + 1).decode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(
                f"chat_template={option[:200]!r}: neither Jinja text nor a readable file: {reason}"
            ) from None
    if len(text) > _MAX_TEMPLATE:
        raise ConfigError(f"chat_template: a template of over {_MAX_TEMPLATE} characters")
    return text


def own_template(tokenizer: Tokenizer, template: Mapping[str, Any]) -> str | None:
    """The tokenizer's template; of several named ones, `tool_use` when there are tools, else `default`."""
    found = getattr(tokenizer.hf, "chat_template", None)
    if not isinstance(found, dict):
        return found or None
    name = "tool_use" if template.get("tools") and "tool_use" in found else "default"
    if name not in found:
        raise ConfigError(f"chat_template: the model has templates {sorted(found)}; choose one with chat_template=")
    return str(found[name])


def _roles_for(source: str, messages: list[Message]) -> list[Message]:
    """`developer` is OpenAI's new name of `system`; most templates know the old one only."""
    if "developer" in source:
        return messages
    return [{**message, "role": "system"} if message["role"] == "developer" else message for message in messages]


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    tokens = getattr(tokenizer.hf, "special_tokens_map", {})
    return {name: str(token) for name, token in tokens.items() if isinstance(name, str) and not isinstance(token, list)}


def _check_variables(template: Mapping[str, Any]) -> None:
    for name in template:
        if name not in TEMPLATE_FIELDS:
            raise RequestError(
                f"chat: unknown template variable {name!r}{did_you_mean(name, TEMPLATE_FIELDS)} "
                f"(allowed: {', '.join(TEMPLATE_FIELDS)})"
            )
