"""/generate, /batch_generate, /tokenize, /detokenize, /health, and what happens to fields that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.server.conftest import Serve
from tests.server.fakes import send
from yaie_engine import LLM, SamplingParams
from yaie_magic.server.background import BackgroundServer

Post = Callable[..., httpx.Response]
PROMPT = "Once upon a time"


def offline(llm: LLM, prompt: Any = PROMPT, **settings: Any) -> str:
    params = SamplingParams(**{"temperature": 0, "max_tokens": 8, **settings})
    return llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].text


def events(answer: httpx.Response) -> list[Any]:
    """The data of a stream, [DONE] as it stands."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_generate(post: Post, tiny: LLM) -> None:
    answer = post("/generate", prompt=PROMPT, temperature=0, max_tokens=8)
    body = answer.json()
    assert set(body) == {"text", "tokens", "seconds", "finish_reason", "request_id"}
    assert body["text"] == offline(tiny) and body["tokens"] == 8 and body["finish_reason"] == "length"
    assert body["request_id"] in {record.request_id for record in tiny.history()}
    assert answer.headers["x-request-id"].startswith("req_")


def test_generate_streams(post: Post, tiny: LLM) -> None:
    answer = post("/generate", prompt=PROMPT, temperature=0, max_tokens=8, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *pieces, end = events(answer)
    assert end == "[DONE]" and "".join(piece["text"] for piece in pieces) == offline(tiny)
    assert all(set(piece) == {"text"} for piece in pieces)


def test_generate_several_choices_and_logprobs(post: Post) -> None:
    body = post("/generate", prompt=PROMPT, max_tokens=4, n=3, temperature=8, seed=3, logprobs=1).json()
    assert len(body["choices"]) == 3 and body["choices"][0]["text"] == body["text"]
    assert len(body["logprobs"]) == body["choices"][0]["tokens"]


def test_generate_from_token_ids(post: Post, tiny: LLM) -> None:
    body = post("/generate", prompt=tiny.tokenize(PROMPT), temperature=0, max_tokens=8).json()
    assert body["text"] == offline(tiny)


def test_batch_generate(post: Post, tiny: LLM) -> None:
    prompts = [PROMPT, "The cat", "Hello"]
    results = post("/batch_generate", prompts=prompts, temperature=0, max_tokens=8).json()["results"]
    assert [result["text"] for result in results] == [offline(tiny, prompt) for prompt in prompts]


def test_tokenize_and_back(post: Post, tiny: LLM) -> None:
    body = post("/tokenize", prompt="Hello, w\u00f6rld \U0001f600", return_token_strs=True).json()
    assert body["tokens"] == tiny.tokenize("Hello, w\u00f6rld \U0001f600") and body["count"] == len(body["tokens"])
    assert len(body["token_strs"]) == body["count"] and body["max_model_len"] == tiny.max_model_len
    assert post("/detokenize", tokens=body["tokens"]).json() == {"prompt": "Hello, w\u00f6rld \U0001f600"}
    messages = [{"role": "user", "content": "Hi"}]
    assert post("/tokenize", messages=messages).json()["tokens"] == tiny.chat_ids(messages)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}),
        ("/tokenize", {"prompt": 3}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [2**70]}),
        ("/detokenize", {"tokens": "1 2"}),
    ],
)
def test_bad_token_requests_are_400(post: Post, path: str, body: dict[str, Any]) -> None:
    assert post(path, **body).status_code == 400


def test_health(http: httpx.Client, server: BackgroundServer) -> None:
    answer = http.get("/health")
    body = answer.json()
    assert answer.status_code == 200 and body["status"] == "ok" and body["model"] == "tiny"
    assert body["active_requests"] == body["queue_length"] == 0
    assert body["memory"]["peak_bytes"] >= body["memory"]["process_bytes"] > 10**6


def test_unknown_fields_are_named_and_ignored(post: Post, tiny: LLM) -> None:
    extra = {"zebra_crossing": 1, "user": "me", "a b": 2, "x" * 65: 3}
    answer = post("/generate", prompt=PROMPT, temperature=0, max_tokens=8, **extra)
    assert answer.json()["text"] == offline(tiny)
    assert set(answer.headers["x-yaie-ignored"].split(", ")) == {"zebra_crossing", "user"}


def test_at_most_sixteen_are_named(post: Post) -> None:
    answer = post("/generate", prompt="x", max_tokens=1, **{f"unknown_field_{i}": i for i in range(40)})
    assert len(answer.headers["x-yaie-ignored"].split(", ")) == 16


def test_unknown_fields_of_messages_are_named(post: Post) -> None:
    messages = [{"role": "user", "content": "x", "weight_of_it": 1}]
    answer = post("/v1/chat/completions", messages=messages, max_tokens=1)
    assert answer.status_code == 200 and answer.headers["x-yaie-ignored"] == "messages.weight_of_it"


@pytest.mark.parametrize("name", ["promt", "max_tokns", "Temperature", "top_kk", "m"])
def test_a_name_close_to_a_known_one_is_refused(post: Post, name: str) -> None:
    answer = post("/generate", prompt="x", max_tokens=1, **{name: 1})
    assert answer.status_code == 422 and "did you mean" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/batch_generate", {"stream": True}),
        ("/generate", {"max_completion_tokens": 5}),
        ("/v1/completions", {"max_completion_tokens": 5}),
        ("/v1/completions", {"tools": [{"type": "function"}]}),
        ("/v1/chat/completions", {"echo": True}),
        ("/generate", {"response_format": {"type": "json_object"}}),
    ],
)
def test_what_would_change_the_answer_elsewhere_is_refused(post: Post, path: str, field: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}]
    prompt: dict[str, Any] = (
        {"messages": messages} if "chat" in path else {"prompts" if "batch" in path else "prompt": "x"}
    )
    answer = post(path, **prompt, **field)
    assert answer.status_code in (400, 422) and answer.json()["error"]["param"] == next(iter(field))


def test_null_and_defaults_of_unsupported_fields_pass(post: Post) -> None:
    given = {"response_format": {"type": "text"}, "best_of": 1, "suffix": None, "parallel_tool_calls": True}
    answer = post("/v1/completions", prompt="x", max_tokens=1, temperature=None, stop=None, **given)
    assert answer.status_code == 200 and "x-yaie-ignored" not in answer.headers


def test_strict_refuses_every_unknown_field(serve: Serve) -> None:
    server = serve(strict=True)
    answer = send(server, "/generate", {"prompt": "x", "zebra_crossing": 1})
    assert answer.status_code == 422 and answer.json()["error"]["param"] == "zebra_crossing"
    given = {"prompt": "x", "max_tokens": 1, "user": "me"}
    assert send(server, "/generate", given).status_code == 200


def test_no_text_of_a_request_is_in_an_error(http: httpx.Client, server: BackgroundServer) -> None:
    secret = "xyzzyplugh"
    bodies: list[tuple[str, Any]] = [
        ("/generate", {"prompt": {secret: secret}}),
        ("/generate", {"prompt": [secret]}),
        ("/generate", {"prompt": "x", "stop": [secret, 3]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": {secret: 1}}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": secret}, {"role": secret}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image", "x": secret}]}]}),
        ("/v1/chat/completions", {"messages": secret}),
        ("/v1/completions", {"prompt": "x", "logit_bias": {secret: 1}}),
        ("/v1/completions", {"prompt": secret * 4000}),
    ]
    for path, body in bodies:
        answer = http.post(path, json=body)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert secret not in answer.text, (path, answer.text)
