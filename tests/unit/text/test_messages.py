"""Messages: what is taken, and what is refused with its place."""

from __future__ import annotations

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.messages import ROLES, check_messages

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize("role", ROLES)
def test_every_role_with_text(role: str) -> None:
    assert check_messages([{"role": role, "content": "x"}]) == [{"role": role, "content": "x"}]


@pytest.mark.parametrize("content", ["", None])
def test_case_30_assistant_content_may_be_empty(content: str | None) -> None:
    [message] = check_messages([{"role": "assistant", "content": content, "tool_calls": [CALL]}])
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert check_messages([{"role": "assistant"}])[0]["content"] == ""


def test_case_30_tool_content_as_parts() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    [message] = check_messages([{"role": "tool", "content": parts, "tool_call_id": "c1"}])
    assert message == {"role": "tool", "content": "one\ntwo", "tool_call_id": "c1"}


def test_fields_that_clients_echo_are_dropped() -> None:
    message = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None}
    assert check_messages([message]) == [{"role": "assistant", "content": "x"}]


def test_the_callers_messages_stay_as_they_are() -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": [CALL]}]
    check_messages(messages)
    assert messages[0]["content"] is None
    assert CALL["function"] == {"name": "add", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "at least one"),
        ({}, "dict"),
        ("hi", "str"),
        (None, "NoneType"),
        (["hi"], r"messages\[0\]=str"),
        ([{"content": "x"}], r"messages\[0\].role=None"),
        ([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}], r"messages\[1\].role='robot'"),
        ([{"role": "usr", "content": "x"}], "did you mean 'user'"),
        ([{"role": ["user"], "content": "x"}], "role="),
        ([{"role": "user"}], "content=None"),
        ([{"role": "user", "content": 5}], "content=5"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url' is not supported"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text=None"),
        ([{"role": "user", "content": [5]}], "int"),
        ([{"role": "user", "content": "x", "contents": 1}], "did you mean 'content'"),
        ([{"role": "user", "content": "x", "name": 4}], "name=4"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "only assistant"),
        ([{"role": "assistant", "tool_calls": "x"}], "list"),
        ([{"role": "assistant", "tool_calls": [{}]}], r"tool_calls\[0\]"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], "not JSON"),
    ],
)
def test_what_is_refused(messages: object, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        check_messages(messages)


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 100_000, "[" + "9" * 5000 + "]"])
def test_arguments_without_end_are_refused(arguments: str) -> None:
    """A body of depth 3 may hold a text of any depth."""
    call = {"function": {"name": "f", "arguments": arguments}}
    with pytest.raises(RequestError, match=r"arguments is not JSON"):
        check_messages([{"role": "assistant", "tool_calls": [call]}])
