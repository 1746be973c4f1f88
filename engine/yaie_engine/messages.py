"""Checks the messages of a conversation and brings them into the one form that chat templates know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import RequestError
from .validation import did_you_mean

ROLES = ("system", "developer", "user", "assistant", "tool")
FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content")
ECHOED = ("refusal", "annotations", "audio", "function_call")
"""Fields that clients send back from an OpenAI answer; they hold nothing a template uses."""
Message = dict[str, Any]


def check_messages(messages: Any) -> list[Message]:
    """New dicts with a role, text content, and the fields that are set.

    Content may be a string, a list of text parts (joined by newlines, as vLLM does), or absent in an assistant message.

    Raises:
        RequestError: the list is empty, or a message is wrong; the text names its index, field and value.
    """
    if not isinstance(messages, list | tuple):
        raise RequestError(f"messages={type(messages).__name__}: a list of {{role, content}} dicts is needed")
    if not messages:
        raise RequestError("messages=[]: at least one message is needed")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where}={type(message).__name__}: a dict with role and content is needed")
    for name in message:
        if name not in FIELDS and name not in ECHOED:
            raise RequestError(f"{where}: unknown field {name!r}{did_you_mean(str(name), FIELDS)}")
    role = message.get("role")
    if role not in ROLES:
        near = did_you_mean(role, ROLES) if isinstance(role, str) else ""
        raise RequestError(f"{where}.role={role!r} is unknown (allowed: {', '.join(ROLES)}){near}")
    checked: Message = {"role": role, "content": _content(message.get("content"), role, where)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{where}.{name}={value!r}: a string is needed")
        if value is not None:
            checked[name] = value
    if message.get("tool_calls"):
        checked["tool_calls"] = _tool_calls(message["tool_calls"], role, where)
    return checked


def _content(content: Any, role: str, where: str) -> str:
    if content is None and role == "assistant":
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    raise RequestError(f"{where}.content={content!r}: a string or a list of text parts is needed")


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind not in ("text", "input_text", "output_text"):
        raise RequestError(f"{where}: a part of type {kind!r} is not supported, only text is")
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(f"{where}.text={text!r}: a string is needed")
    return text


def _tool_calls(calls: Any, role: str, where: str) -> list[dict[str, Any]]:
    if role != "assistant":
        raise RequestError(f"{where}.tool_calls: only assistant messages have them")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise RequestError(f"{where}.tool_calls={type(calls).__name__}: a list is needed")
    return [_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    """Arguments arrive as JSON text; templates want the object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}: {{type: 'function', function: {{name, arguments}}}} is needed")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise RequestError(f"{where}.function.arguments is not JSON") from None
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}
