"""Servers that are not ours: what is sent to them, and what is made of their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.remote.scripted import Asked, Reply, ScriptedServer, chat_chunk, chunk
from yaie_engine import LLM, SamplingParams, YaieError
from yaie_engine.outputs import TokenCounts
from yaie_magic.chat import Chat
from yaie_magic.completion import Completion
from yaie_magic.remote import RemoteLLM, connect
from yaie_magic.render import summary
from yaie_magic.run import Run
from yaie_widgets.live.generation_row import DASH

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GREEDY = SamplingParams(temperature=0, max_tokens=9)


def completion(remote: RemoteLLM, prompt: str = "x", **params: Any) -> Completion:
    """One completion as a cell has it."""
    chosen = SamplingParams(**params)
    return Completion(Run(remote.submit(prompt, chosen), remote, prompt, chosen)).wait(30)


def test_only_what_was_given_is_sent(scripted: ScriptedServer) -> None:
    scripted.on(COMPLETIONS, lambda _, reply: reply.stream(chunk("y", "stop")))
    with connect(scripted.url) as remote:
        completion(remote)
        completion(remote, max_tokens=5, stop="end", logit_bias={3: -1.5}, timeout=30, seed=None)
    usual = {"model": "m", "prompt": "x", "stream": True, "stream_options": {"include_usage": True}}
    first, second = (each.body for each in scripted.requests(COMPLETIONS))
    assert first == usual
    assert second == {**usual, "max_tokens": 5, "stop": ["end"], "logit_bias": {"3": -1.5}}


def test_a_conversation_is_kept_as_messages(scripted: ScriptedServer) -> None:
    answers = iter(["Hello!", "Fine.", "Bye."])
    scripted.on(CHAT, lambda _, reply: reply.stream(chat_chunk(next(answers)), chat_chunk("", "stop"), "[DONE]"))
    talk = Chat("default", system="Be brief.")
    with connect(scripted.url) as remote:
        for text in ("Hi", "How are you?"):
            assert talk.send(remote, text, SamplingParams(logprobs=2)).settle(30)
    first, second = (each.body for each in scripted.requests(CHAT))
    opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert first["messages"] == opening
    assert (first["logprobs"], first["top_logprobs"]) == (True, 2)
    assert second["messages"] == [
        *opening,
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How are you?"},
    ]
    assert talk.num_turns == 2


def test_log_probabilities_that_cannot_be_kept_are_missed_aloud(scripted: ScriptedServer) -> None:
    rows = {"tokens": ["y"], "token_logprobs": [-0.5], "top_logprobs": [{"y": -0.5}]}
    told = json.dumps({"choices": [{"index": 0, "text": "y", "logprobs": rows, "finish_reason": "stop"}]})
    scripted.on(COMPLETIONS, lambda _, reply: reply.stream(told, "[DONE]"))
    with connect(scripted.url) as remote:
        asked = completion(remote, logprobs=2)
        assert asked.logprobs is None
        assert summary(asked) == "stop · no log probabilities: the server tells no token ids"
        assert summary(completion(remote)) == "stop"


def test_counts_are_the_servers_and_nothing_is_made_up(scripted: ScriptedServer) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    scripted.on(COMPLETIONS, lambda _, reply: reply.stream(chunk("one two", "length"), chunk(usage=usage), "[DONE]"))
    with connect(scripted.url) as remote:
        told = completion(remote)
        assert dict(told.usage) == {"prompt": 11, "completion": 3, "cached": 8}
        assert (told.tokens, told.logprobs, told.request_id) == ((), None, "cmpl-1")
        assert "3 tokens · length · 8 of 11 prompt tokens cached" in summary(told)
        scripted.on(COMPLETIONS, lambda _, reply: reply.stream(chunk("one two", "stop"), "[DONE]"))
        untold = completion(remote)
        assert untold._run.output is not None
        assert untold._run.output.counts == TokenCounts()
        assert summary(untold) == "stop"
        figures = {name: figure for name, figure, _ in untold.row().stats}
        assert figures["Output"] == figures["Queue"] == figures["Cached"] == DASH


@pytest.mark.parametrize(
    ("choice", "text", "reason", "why"),
    [
        ({"text": "a", "finish_reason": "stop", "stop_reason": "END"}, "a", "stop", "END"),
        ({"text": "a", "finish_reason": "content_filter"}, "a", "stop", "content_filter"),
        ({"text": "a", "finish_reason": "abort"}, "a", "cancelled", None),
        ({"delta": {"reasoning_content": "hm", "content": "a"}, "finish_reason": "length"}, "a", "length", None),
        (
            {"delta": {"role": "assistant", "content": None, "tool_calls": []}, "finish_reason": "stop"},
            "",
            "stop",
            None,
        ),
    ],
)
def test_endings_have_our_names(
    scripted: ScriptedServer, choice: dict[str, Any], text: str, reason: str, why: str | None
) -> None:
    scripted.on(COMPLETIONS, lambda _, reply: reply.stream({"choices": [choice]}, "[DONE]"))
    with connect(scripted.url) as remote:
        found = completion(remote)
    assert (found.text, found.finish_reason, found.stop_reason, found.error) == (text, reason, why, None)


def test_a_server_that_only_chats_gets_a_prompt_as_a_message(scripted: ScriptedServer) -> None:
    scripted.on(CHAT, lambda _, reply: reply.stream(chat_chunk("y", "stop"), "[DONE]"))
    with connect(scripted.url) as remote:
        assert not remote.continues_text
        assert completion(remote, "Once upon").text == "y"
        assert scripted.requests(CHAT)[0].body["messages"] == [{"role": "user", "content": "Once upon"}]
        with pytest.raises(YaieError, match="it has no prompts of token ids"):
            remote.submit([1, 2, 3])


def test_a_batch_asks_for_a_bounded_number_at_a_time(scripted: ScriptedServer) -> None:
    lock, most, inside = threading.Lock(), 0, 0

    def script(asked: Asked, reply: Reply) -> None:
        nonlocal most, inside
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with lock:
            inside -= 1
        reply.stream(chunk(f"<{asked.body['prompt']}>", "stop"), "[DONE]")

    scripted.on(COMPLETIONS, script)
    with connect(scripted.url) as remote:
        outputs = remote.generate([str(i) for i in range(70)], use_tqdm=False)
    assert [each.outputs[0].text for each in outputs] == [f"<{i}>" for i in range(70)]
    assert 1 < most <= 32


def test_what_was_sent_from_here_can_be_listed_and_cancelled(scripted: ScriptedServer) -> None:
    def script(asked: Asked, reply: Reply) -> None:
        reply.stream({**chunk("so far"), "id": f"cmpl-{asked.body['prompt']}"})
        reply.gone()

    scripted.on(COMPLETIONS, script)
    with connect(scripted.url) as remote:
        handles = [remote.submit(name) for name in ("a", "b")]
        for handle in handles:
            next(iter(handle))
        assert sorted(remote.running()) == ["cmpl-a", "cmpl-b"]
        assert remote.cancel("cmpl-a") == 1
        assert handles[0].result(10).outputs[0].finish_reason == "cancelled"
        assert remote.cancel() == 1
        assert handles[1].result(10).outputs[0].finish_reason == "cancelled"


# ---- a whole server of somebody else


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`transformers serve` with the bundled model."""
    import socket

    from transformers.utils.import_utils import is_serve_available

    import yaie_engine

    if not is_serve_available():
        pytest.skip("transformers serve needs its serving packages")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    folder = Path(yaie_engine.__file__).parent / "bundled" / "tiny"
    log = (tmp_path_factory.mktemp("foreign") / "log").open("wb")
    line = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--device", "cpu"]
    server = subprocess.Popen(
        [*line, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=log,
        stderr=log,
    )
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    try:
        while True:
            try:
                connect(url).close()
                break
            except YaieError:
                assert server.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < end, "it did not start"
                time.sleep(0.2)
        yield url
    finally:
        server.kill()
        server.wait(30)
        log.close()


@pytest.mark.full
def test_transformers_serve_answers_as_our_engine_does(foreign: str, llm: LLM) -> None:
    """The same weights, greedy: so the same text, from a server that shares no code with ours."""
    talk = [{"role": "user", "content": "Hello"}]
    with connect(f"{foreign}/v1") as remote:
        assert (remote.kind, remote.continues_text, remote.state) == ("openai", True, "ready")
        there = remote.submit("Once upon a time", GREEDY).result(120)
        here = llm.submit("Once upon a time", GREEDY).result(60)
        assert (there.error, there.outputs[0].text) == (None, here.outputs[0].text)
        assert there.num_prompt_tokens == len(here.prompt_token_ids)
        assert there.outputs[0].finish_reason == here.outputs[0].finish_reason
        there = remote.submit_chat(talk, GREEDY).result(120)
        assert there.outputs[0].text == llm.submit_chat(talk, GREEDY).result(60).outputs[0].text
        batch = remote.generate(["The sea", "A cat", "The moon"], GREEDY, use_tqdm=False)
        local = llm.generate(["The sea", "A cat", "The moon"], GREEDY, use_tqdm=False)
        assert [each.outputs[0].text for each in batch] == [each.outputs[0].text for each in local]
        assert "does not honour n" in str(remote.submit("x", SamplingParams(n=2, max_tokens=2)).result(60).error)
        long = remote.submit("Once upon a time", SamplingParams(max_tokens=3000))
        next(iter(long))
        long.cancel()
        assert long.result(20).outputs[0].finish_reason == "cancelled"
