"""`return_token_ids`, as vLLM has it, of our server: for whole answers and for streams, of texts and of chats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.remote.conftest import KEY
from yaie_engine import LLM, SamplingParams
from yaie_magic.server.background import BackgroundServer

TALK = [{"role": "user", "content": "Hello"}]
ASKED = {"temperature": 0, "max_tokens": 7, "return_token_ids": True, "n": 2}


@pytest.fixture
def http(own_server: BackgroundServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=own_server.url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


def streamed(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream."""
    text = http.post(path, json={**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def expected(llm: LLM, prompt: list[int]) -> list[int]:
    """The ids of the answer."""
    return list(llm.submit(prompt, SamplingParams(temperature=0, max_tokens=7)).result(30).outputs[0].token_ids)


def test_a_text(llm: LLM, http: httpx.Client) -> None:
    prompts = [llm.tokenize("Once upon a time"), llm.tokenize("The sea")]
    whole = http.post("/v1/completions", json={"prompt": prompts, **ASKED}).json()
    assert [each["prompt_token_ids"] for each in whole["choices"]] == [prompts[0], prompts[0], prompts[1], prompts[1]]
    assert [each["token_ids"] for each in whole["choices"][1:3]] == [expected(llm, each) for each in prompts]
    found: dict[int, list[int]] = {}
    chunks = streamed(http, "/v1/completions", {"prompt": prompts, **ASKED})
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in chunks[:4]] == [p for p in prompts for _ in "12"]
    assert not any("prompt_token_ids" in chunk["choices"][0] for chunk in chunks[4:])
    for chunk in chunks:
        found.setdefault(chunk["choices"][0]["index"], []).extend(chunk["choices"][0]["token_ids"])
    assert found == {each["index"]: each["token_ids"] for each in whole["choices"]}


def test_a_chat(llm: LLM, http: httpx.Client) -> None:
    prompt = llm.chat_ids(TALK)
    whole = http.post("/v1/chat/completions", json={"messages": TALK, **ASKED}).json()
    assert whole["prompt_token_ids"] == prompt
    assert [each["token_ids"] for each in whole["choices"]] == [expected(llm, prompt)] * 2
    found: dict[int, list[int]] = {}
    chunks = streamed(http, "/v1/chat/completions", {"messages": TALK, **ASKED})
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [prompt, *[None] * (len(chunks) - 1)]
    for chunk in chunks:
        found.setdefault(chunk["choices"][0]["index"], []).extend(chunk["choices"][0]["token_ids"])
    assert found == {0: expected(llm, prompt), 1: expected(llm, prompt)}


def test_nothing_of_it_is_there_unasked(http: httpx.Client) -> None:
    for body in ({"return_token_ids": False}, {}):
        text = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **body}).json()
        chat = http.post("/v1/chat/completions", json={"messages": TALK, "max_tokens": 1, **body}).json()
        assert set(text["choices"][0]) == {"index", "text", "logprobs", "finish_reason", "stop_reason"}
        assert "request_ids" not in text
        assert set(chat["choices"][0]) == {"index", "message", "logprobs", "finish_reason", "stop_reason"}
        assert "prompt_token_ids" not in chat


def test_nothing_is_generated_when_nothing_is_asked_for(llm: LLM, http: httpx.Client) -> None:
    body = {"prompt": "The sea", "max_tokens": 0, "echo": True, "return_token_ids": True, "logprobs": 0}
    (choice,) = http.post("/v1/completions", json=body).json()["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (llm.tokenize("The sea"), [])


def test_details_are_the_engines_figures(llm: LLM, http: httpx.Client) -> None:
    body = {"prompt": ["a", "b"], "max_tokens": 2, "return_details": True, "logprobs": 1, "temperature": 0}
    whole = http.post("/v1/completions", json=body).json()
    records = {each.request_id: each for each in llm.history()[-2:]}
    assert list(records) == sorted(whole["request_ids"], key=lambda name: int(name.partition("-")[2]))
    for name, figures in zip(whole["request_ids"], whole["metrics"], strict=True):
        assert figures["last_step"] == records[name].last_step
    rows = whole["choices"][0]["token_logprobs"]
    assert [min(each["rank"] for each in row.values()) for row in rows] == [1, 1]


def test_the_bytes_of_tokens(llm: LLM, http: httpx.Client) -> None:
    ids = [0, 5, 300, llm.vocab_size - 1]
    found = http.post("/detokenize", json={"tokens": ids, "return_token_bytes": True}).json()["token_bytes"]
    assert [None if each is None else bytes(each) for each in found] == [llm.tokenizer.token_bytes(i) for i in ids]
    assert "token_bytes" not in http.post("/detokenize", json={"tokens": ids}).json()
