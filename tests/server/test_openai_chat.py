"""Chat completions through the official client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.engine.fakes import eventually
from yaie_engine import LLM, SamplingParams

HELLO: list[Any] = [{"role": "user", "content": "Hello! Who are you?"}]
GREEDY: dict[str, Any] = {"model": "tiny", "messages": HELLO, "temperature": 0, "max_completion_tokens": 12}


def offline(llm: LLM, **settings: Any) -> str:
    params = SamplingParams(**{"temperature": 0, "max_tokens": 12, **settings})
    return llm.chat(HELLO, params, use_tqdm=False)[0].outputs[0].text


def test_answer_equals_the_offline_one(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.chat.completions.create(**GREEDY)
    (choice,) = answer.choices
    assert choice.message.content == offline(tiny)
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert answer.object == "chat.completion" and answer.model == "tiny" and answer.id.startswith("chatcmpl-")
    usage = answer.usage
    assert usage is not None and usage.completion_tokens == 12
    assert usage.total_tokens == usage.prompt_tokens + 12


def test_second_time_the_prompt_is_cached(client: openai.OpenAI) -> None:
    client.chat.completions.create(**GREEDY)
    usage = client.chat.completions.create(**GREEDY).usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    assert getattr(usage.prompt_tokens_details, "reuse") == "radix"  # noqa: B009  no field of OpenAI's


def test_stream_joins_to_the_answer(client: openai.OpenAI, tiny: LLM) -> None:
    chunks = list(client.chat.completions.create(**GREEDY, stream=True))
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == offline(tiny)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["length"]
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize(("options", "wanted"), [(None, 0), ({}, 0), ({"include_usage": False}, 0)])
def test_no_usage_unless_asked_for(client: openai.OpenAI, options: Any, wanted: int) -> None:
    given = {} if options is None else {"stream_options": options}
    chunks = list(client.chat.completions.create(**GREEDY, stream=True, **given))
    assert sum(chunk.usage is not None for chunk in chunks) == wanted


def test_usage_is_the_last_chunk_and_has_no_choices(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12


def test_several_choices_differ_and_repeat(client: openai.OpenAI) -> None:
    given = {**GREEDY, "temperature": 8, "seed": 1, "n": 4}
    first, second = (client.chat.completions.create(**given).choices for _ in range(2))
    assert [choice.index for choice in first] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in first}) > 1
    assert [c.message.content for c in first] == [c.message.content for c in second]
    texts = dict.fromkeys(range(4), "")
    reasons: list[int] = []
    for chunk in client.chat.completions.create(**given, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        reasons += [chunk.choices[0].index] if chunk.choices[0].finish_reason else []
    assert list(texts.values()) == [choice.message.content for choice in first]
    assert sorted(reasons) == [0, 1, 2, 3]


def test_logprobs_whole_and_streamed_are_the_same(client: openai.OpenAI) -> None:
    given = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**given).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content is not None
    content = whole.logprobs.content
    assert len(content) == 12 and all(len(item.top_logprobs) == 3 for item in content)
    assert b"".join(bytes(item.bytes or ()) for item in content).decode() == whole.message.content
    assert all(item.top_logprobs[0].token == item.token for item in content)
    chunks = list(client.chat.completions.create(**given, stream=True))
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    streamed = [item for part in parts for item in part.content or ()]
    assert [item.token for item in streamed] == [item.token for item in content]
    assert [item.logprob for item in streamed] == pytest.approx([item.logprob for item in content], abs=1e-4)


def test_logprobs_without_top_logprobs(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(**GREEDY, logprobs=True).choices[0]
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert all(item.top_logprobs == [] for item in choice.logprobs.content)


def test_stop(client: openai.OpenAI, tiny: LLM) -> None:
    text = offline(tiny)
    word = text.split()[1]
    choice = client.chat.completions.create(**GREEDY, stop=word).choices[0]
    assert choice.message.content == text.split(word)[0] and choice.finish_reason == "stop"
    assert getattr(choice, "stop_reason") == word  # noqa: B009


def test_logit_bias_forces_a_token(client: openai.OpenAI, tiny: LLM) -> None:
    token = tiny.tokenize("the")[0]
    choice = client.chat.completions.create(**GREEDY, logit_bias={str(token): 100}).choices[0]
    assert choice.message.content == tiny.detokenize([token] * 12)


def test_fields_of_vllm_are_honoured(client: openai.OpenAI, tiny: LLM) -> None:
    extra = {"repetition_penalty": 1.4, "min_tokens": 2, "top_k": 5, "cache_salt": "mine"}
    answer = client.chat.completions.create(**GREEDY, extra_body=extra)
    assert answer.choices[0].message.content == offline(tiny, **extra)


TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("content", ["", None, "absent"])
@pytest.mark.parametrize("reply", ["noon", [{"type": "text", "text": "noon"}]])
def test_tool_messages_in_all_forms(client: openai.OpenAI, content: Any, reply: Any) -> None:
    """An assistant message with tool calls may lack its content; a tool's content may be a list."""
    said: dict[str, Any] = {"role": "assistant", "tool_calls": [TOOL_CALL]}
    if content != "absent":
        said["content"] = content
    messages: list[Any] = [*HELLO, said, {"role": "tool", "tool_call_id": "c1", "content": reply}]
    answer = client.chat.completions.create(**{**GREEDY, "messages": messages}, tools=TOOLS)
    assert answer.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("limit", [1, 40])
def test_tool_stream_has_one_finish_reason(client: openai.OpenAI, limit: int) -> None:
    given = {**GREEDY, "max_completion_tokens": limit}
    chunks = list(client.chat.completions.create(**given, tools=TOOLS, stream=True))
    assert len([c for c in chunks if c.choices[0].finish_reason is not None]) == 1


def test_chat_goes_on_with_history_and_system(client: openai.OpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        *HELLO,
        {"role": "assistant", "content": "A model.", "refusal": None},
        {"role": "user", "content": [{"type": "text", "text": "Which one?"}]},
    ]
    assert client.chat.completions.create(**{**GREEDY, "messages": messages}).choices[0].message.content is not None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"temperature": 3e9}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 10**6}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"chat_template": "{{ 1 }}"}}, "chat_template"),
        ({"extra_body": {"chat_template_kwargs": {"tokenize": False}}}, "chat_template_kwargs"),
        ({"extra_body": {"chat_template_kwargs": {"chat_template": "x"}}}, "chat_template_kwargs"),
        ({"extra_body": {"guided_json": {}}}, "guided_json"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
        ({"extra_body": {"structured": "x"}}, "structured"),
        ({"extra_body": {"seed": 2**70}}, "seed"),
    ],
)
def test_bad_values_are_400(client: openai.OpenAI, change: dict[str, Any], word: str) -> None:
    """Each names its field, before a stream begins, too."""
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**GREEDY, **change}, stream=stream)
        assert caught.value.param == word and word in str(caught.value)
        assert caught.value.type == "invalid_request_error" and caught.value.request_id


def test_stream_options_without_a_stream_are_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="stream_options"):
        client.chat.completions.create(**GREEDY, stream_options={"include_usage": True})


def test_over_the_context_says_both_numbers(client: openai.OpenAI, tiny: LLM) -> None:
    for change in ({"max_completion_tokens": 5000}, {"messages": [{"role": "user", "content": "word " * 6000}]}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**GREEDY, **change})
        assert caught.value.code == "context_length_exceeded" and str(tiny.max_model_len) in str(caught.value)


def test_unknown_model_is_404(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(**{**GREEDY, "model": "gpt-9"}, stream=stream)
        assert caught.value.code == "model_not_found"


def test_models(client: openai.OpenAI, tiny: LLM) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny" and getattr(model, "max_model_len") == tiny.max_model_len  # noqa: B009


def test_template_variables_on_the_list_reach_the_template(client: openai.OpenAI) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    assert client.chat.completions.create(**GREEDY, extra_body=extra).choices[0].message.content


def test_a_timeout_of_the_request_is_504(client: openai.OpenAI) -> None:
    given = {**GREEDY, "max_completion_tokens": 3000, "extra_body": {"timeout": 0.05, "ignore_eos": True}}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**given)
    assert caught.value.status_code == 504 and caught.value.code == "timeout"


def test_a_timeout_of_the_client_cancels(client: openai.OpenAI, tiny: LLM) -> None:
    before = tiny.snapshot().counters.requests.get("cancelled", 0)
    given = {**GREEDY, "max_completion_tokens": 3000, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**given, timeout=0.3)
    eventually(lambda: tiny.snapshot().counters.requests.get("cancelled", 0) == before + 1, 10)
