"""Text completions through the official client."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from yaie_engine import LLM, SamplingParams

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 10}


def offline(llm: LLM, prompt: Any = PROMPT) -> str:
    params = SamplingParams(temperature=0, max_tokens=10)
    return llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].text


def test_answer_equals_the_offline_one(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.completions.create(**GREEDY, prompt=PROMPT)
    assert answer.object == "text_completion" and answer.choices[0].text == offline(tiny)
    assert answer.choices[0].finish_reason == "length"


def test_prompts_as_lists_and_token_ids(client: openai.OpenAI, tiny: LLM) -> None:
    ids = tiny.tokenize(PROMPT)
    assert client.completions.create(**GREEDY, prompt=ids).choices[0].text == offline(tiny)
    several = client.completions.create(**GREEDY, prompt=[PROMPT, "The cat"], n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in several.choices] == [offline(tiny)] * 2 + [offline(tiny, "The cat")] * 2
    params = SamplingParams(temperature=0, max_tokens=10)
    outputs = tiny.generate([PROMPT, "The cat"], params, use_tqdm=False)
    assert several.usage is not None
    assert several.usage.completion_tokens == 2 * sum(len(output.outputs[0].token_ids) for output in outputs)
    assert several.usage.prompt_tokens == len(ids) + len(tiny.tokenize("The cat"))
    many = client.completions.create(**GREEDY, prompt=[ids, ids]).choices
    assert [choice.text for choice in many] == [offline(tiny)] * 2


def test_streams_of_several_prompts(client: openai.OpenAI, tiny: LLM) -> None:
    texts, ends = {0: "", 1: ""}, []
    for chunk in client.completions.create(**GREEDY, prompt=[PROMPT, "The cat"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
        ends += [chunk.choices[0].index] if chunk.choices[0].finish_reason else []
    assert texts == {0: offline(tiny), 1: offline(tiny, "The cat")} and sorted(ends) == [0, 1]


def test_logprobs_and_offsets(client: openai.OpenAI) -> None:
    choice = client.completions.create(**GREEDY, prompt=PROMPT, logprobs=2).choices[0]
    found = choice.logprobs
    assert found is not None and found.tokens and found.text_offset and found.top_logprobs and found.token_logprobs
    assert "".join(found.tokens) == choice.text and len(found.token_logprobs) == 10
    starts = [len("".join(found.tokens[:i])) for i in range(10)]
    assert found.text_offset == starts
    assert all(len(row) == 2 for row in found.top_logprobs)
    parts = list(client.completions.create(**GREEDY, prompt=PROMPT, logprobs=2, stream=True))
    streamed = [part.choices[0].logprobs for part in parts if part.choices[0].logprobs]
    assert [token for part in streamed for token in part.tokens or ()] == found.tokens
    assert [offset for part in streamed for offset in part.text_offset or ()] == found.text_offset


@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_logprobs(client: openai.OpenAI, tiny: LLM, stream: bool) -> None:
    ids = tiny.tokenize(PROMPT)
    given = {**GREEDY, "prompt": PROMPT, "echo": True, "logprobs": 1}
    if stream:
        (choice,) = (chunk.choices[0] for chunk in client.completions.create(**given, stream=True))
    else:
        choice = client.completions.create(**given).choices[0]
    assert choice.text == PROMPT + offline(tiny)
    found = choice.logprobs
    assert found is not None and found.token_logprobs and found.text_offset and found.tokens
    assert len(found.token_logprobs) == len(ids) + 10 and found.token_logprobs[0] is None
    assert found.token_logprobs[1 : len(ids)] == pytest.approx(tiny.score(PROMPT)[1:], abs=1e-4)
    assert found.text_offset[len(ids)] == len(PROMPT) and "".join(found.tokens) == choice.text


def test_echo_without_new_tokens_scores_the_prompt(client: openai.OpenAI, tiny: LLM) -> None:
    answer = client.completions.create(**{**GREEDY, "max_tokens": 0}, prompt=PROMPT, echo=True, logprobs=0)
    (choice,) = answer.choices
    assert choice.text == PROMPT and answer.usage is not None and answer.usage.completion_tokens == 0
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(tiny.score(PROMPT)[1:], abs=1e-4)


def test_echo_of_token_ids(client: openai.OpenAI, tiny: LLM) -> None:
    ids = tiny.tokenize(PROMPT)
    assert client.completions.create(**GREEDY, prompt=ids, echo=True).choices[0].text == PROMPT + offline(tiny)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["x", ""]}, "prompt"),
        ({"prompt": [0, -1]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": ["x"] * 257}, "prompt"),
        ({"prompt": "x" * (10**6 + 1)}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 101}, "logprobs"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_bad_values_are_400(client: openai.OpenAI, change: dict[str, Any], word: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{**GREEDY, "prompt": PROMPT, **change})
    assert word in str(caught.value)


def test_a_lone_surrogate_is_400(http: httpx.Client) -> None:
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/completions", content=rb'{"prompt": "a\ud800b", "max_tokens": 1}', headers=headers)
    assert answer.status_code == 400 and "surrogate" in answer.json()["error"]["message"]


def test_context_edges(client: openai.OpenAI, tiny: LLM) -> None:
    """One less than the context leaves room for one token; the whole context leaves none."""
    token = tiny.tokenize("the")[0]
    most = tiny.max_model_len
    answer = client.completions.create(model="tiny", prompt=[token] * (most - 1), temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 1
    for length in (most, most + 1):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt=[token] * length)
        assert caught.value.code == "context_length_exceeded"
        assert str(most) in str(caught.value) and str(length) in str(caught.value)
