"""An engine behind our server gives what it gives without one, field by field."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.fakes import eventually
from yaie_engine import LLM, CapacityError, EngineDeadError, RequestError, RequestOutput, SamplingParams
from yaie_engine.outputs import RequestMetrics
from yaie_magic.remote import RemoteError, RemoteLLM, connect
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

PROMPT = "Once upon a time"


def without_times(output: RequestOutput) -> RequestOutput:
    """What two runs of the same request have in common."""
    return replace(output, request_id="", num_cached_tokens=0, metrics=RequestMetrics())


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0, "max_tokens": 12},
        {"temperature": 0.9, "seed": 7, "max_tokens": 12, "n": 3, "top_k": 40, "top_p": 0.9},
        {"temperature": 0, "max_tokens": 8, "logprobs": 3, "prompt_logprobs": 2},
        {"temperature": 0, "max_tokens": 40, "stop": ["happy"], "logprobs": 0},
        {"temperature": 0, "max_tokens": 9, "logit_bias": {14: -100.0}, "min_tokens": 3, "repetition_penalty": 1.3},
        {"temperature": 0, "max_tokens": 6, "stop_token_ids": [268], "ignore_eos": True},
    ],
)
def test_a_request_gives_the_same_as_in_the_same_process(llm: LLM, remote: RemoteLLM, params: dict[str, Any]) -> None:
    chosen = SamplingParams(**params)
    here, there = llm.generate(PROMPT, chosen, use_tqdm=False)[0], remote.submit(PROMPT, chosen).result(60)
    assert without_times(there) == without_times(here)
    assert there.error is None
    assert there.counts is None


def test_ids_come_with_each_piece_of_text(llm: LLM, remote: RemoteLLM) -> None:
    """So that a live view counts tokens, and a branch that is being written can be shown."""
    handle = remote.submit(llm.tokenize(PROMPT), SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    pieces = iter(handle)
    next(pieces)
    next(pieces)
    so_far, now = remote.so_far(handle.request_id), handle.progress()
    assert so_far is not None
    assert not so_far.finished
    assert so_far.prompt_token_ids == tuple(llm.tokenize(PROMPT))
    assert now is not None
    assert now.facts.state == "decode"
    assert 2 <= now.facts.num_output_tokens <= 60
    assert so_far.outputs[0].finish_reason is None
    whole = handle.result(60)
    assert whole.outputs[0].token_ids[: len(so_far.outputs[0].token_ids)] == so_far.outputs[0].token_ids
    assert len(whole.outputs[0].token_ids) == 60


def test_the_request_carries_the_engines_own_name_and_figures(llm: LLM, remote: RemoteLLM) -> None:
    handle = remote.submit(PROMPT, SamplingParams(temperature=0, max_tokens=5))
    output = handle.result(60)
    record = llm.history()[-1]
    assert output.request_id == handle.request_id == record.request_id
    assert (output.metrics.first_step, output.metrics.last_step) == (record.first_step, record.last_step)
    assert output.metrics.queue_s == pytest.approx(record.queue_s)
    assert output.metrics.total_s == pytest.approx(record.total_s, rel=0.1)
    assert remote.history(1)[0].request_id == record.request_id


def test_a_prompt_that_was_seen_comes_from_the_servers_cache(remote: RemoteLLM) -> None:
    prompt = "The lighthouse keeper wrote a long letter to the sea and waited for an answer every night."
    first = remote.submit(prompt, SamplingParams(max_tokens=1)).result(60)
    again = remote.submit(prompt, SamplingParams(max_tokens=1)).result(60)
    assert again.num_cached_tokens == len(first.prompt_token_ids) - 1
    assert again.metrics.reuse == "radix"


def test_text_ids_and_template_are_those_of_the_model(llm: LLM, remote: RemoteLLM) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello, ñ€!"}]
    assert remote.chat_ids(talk) == llm.chat_ids(talk)
    assert remote.tokenize("ñ€ and so on") == llm.tokenize("ñ€ and so on")
    ids = llm.chat_ids(talk)
    assert remote.detokenize(ids) == llm.detokenize(ids)
    assert remote.vocab_size == llm.vocab_size
    assert remote.tokenizer.special_ids == llm.tokenizer.special_ids
    places = range(-1, llm.vocab_size + 1)
    assert [remote.tokenizer.token_bytes(i) for i in places] == [llm.tokenizer.token_bytes(i) for i in places]
    assert remote.end_ids(SamplingParams(stop_token_ids=[5])) == llm.end_ids(SamplingParams(stop_token_ids=[5]))


def test_another_model_of_the_same_name_is_not_spoken_to(remote: RemoteLLM) -> None:
    """Token ids that were kept here would be other words there."""
    before = replace(remote._card, fingerprint="0" * 32)
    with RemoteLLM(remote.client.address, remote._key, "yaie", before) as other:
        output = other.submit([1, 2, 3], SamplingParams(max_tokens=2)).result(30)
        assert "another model is served here by now; %yaie restart" in str(output.error)
        with pytest.raises(RemoteError, match="another model"):
            other.tokenize("x")


def test_the_settings_of_the_engine_are_known(llm: LLM, remote: RemoteLLM) -> None:
    assert remote.kind == "yaie"
    assert remote.state == "ready"
    assert remote.max_model_len == llm.max_model_len
    assert remote.max_num_batched_tokens == llm.max_num_batched_tokens
    for name in ("block_size", "max_num_seqs", "num_blocks", "seed", "sampling_defaults"):
        assert getattr(remote.config, name) == getattr(llm.config, name)


def test_cancelling_frees_the_servers_blocks_and_keeps_the_text(llm: LLM, remote: RemoteLLM) -> None:
    handle = remote.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True, seed=1))
    first = next(iter(handle))
    assert remote.running() == [handle.request_id]
    handle.cancel()
    output = handle.result(20)
    assert output.outputs[0].finish_reason == "cancelled"
    assert output.outputs[0].text.startswith(str(first))
    assert output.error is None
    eventually(lambda: not llm.running())
    eventually(lambda: llm.snapshot().blocks.held == 0)


def test_a_handle_that_is_dropped_cancels(llm: LLM, remote: RemoteLLM) -> None:
    handle = remote.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True))
    next(iter(handle))
    del handle
    eventually(lambda: not llm.running())


def test_cancel_by_name_ends_the_request_of_whoever_sent_it(llm: LLM, remote: RemoteLLM) -> None:
    theirs = llm.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True))
    ours = remote.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True))
    next(iter(ours))
    assert remote.cancel(theirs.request_id) == 1
    assert theirs.result(20).outputs[0].finish_reason == "cancelled"
    assert not ours.done
    assert remote.cancel() == 1
    output = ours.result(20)
    assert output.outputs[0].finish_reason == "cancelled"
    assert output.error is None


@pytest.mark.parametrize(
    ("prompt", "params", "kind", "words"),
    [
        (PROMPT, {"max_tokens": 100_000}, CapacityError, "max_tokens=100000"),
        ([1, 2, 99_999], {}, RequestError, "prompt[2]=99999"),
        ([1] * 5000, {}, CapacityError, "5000"),
    ],
)
def test_what_the_server_refuses_is_the_error_of_the_request(
    remote: RemoteLLM, prompt: str | list[int], params: dict[str, Any], kind: type[Exception], words: str
) -> None:
    output = remote.submit(prompt, SamplingParams(**params)).result(30)
    assert type(output.error) is kind
    assert words in str(output.error)
    assert output.outputs[0].finish_reason == "error"


@pytest.mark.parametrize("prompt", ["", [], [True], [1.5], 7, None, ["a"]])
def test_what_is_no_prompt_is_not_sent(remote: RemoteLLM, prompt: Any) -> None:
    with pytest.raises(RequestError, match="prompt"):
        remote.submit(prompt)


def test_a_timeout_ends_the_request_on_the_server(remote: RemoteLLM) -> None:
    output = remote.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True, timeout=0.2)).result(30)
    assert type(output.error).__name__ == "RequestTimeout"
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("error", "timeout")


def test_a_batch_is_answered_in_its_order(llm: LLM, remote: RemoteLLM) -> None:
    prompts = [f"Number {i} is" for i in range(24)]
    params = SamplingParams(temperature=0, max_tokens=3)
    there = remote.generate(prompts, params, use_tqdm=False)
    here = llm.generate(prompts, params, use_tqdm=False)
    assert [each.outputs for each in there] == [each.outputs for each in here]


def test_closing_cancels_what_was_sent_and_leaves_the_server(llm: LLM, remote: RemoteLLM) -> None:
    other = remote.reconnect()
    handle = other.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True))
    next(iter(handle))
    other.close()
    other.close()
    assert handle.result(20).outputs[0].finish_reason == "cancelled"
    assert other.state == "closed"
    with pytest.raises(EngineDeadError, match="connect to it again"):
        other.submit(PROMPT)
    with pytest.raises(EngineDeadError, match="closed"):
        other.snapshot()
    eventually(lambda: not llm.running())
    assert remote.submit(PROMPT, SamplingParams(max_tokens=1)).result(20).error is None


def test_a_server_that_stops_in_the_middle(llm: LLM) -> None:
    server = BackgroundServer(llm, ServerConfig(port=0, access_log="off", shutdown_timeout=1))
    with connect(server.url) as remote:
        handle = remote.submit(PROMPT, SamplingParams(max_tokens=3000, ignore_eos=True))
        next(iter(handle))
        server.stop()
        output = handle.result(30)
        assert output.outputs[0].finish_reason in ("cancelled", "error")
        assert output.outputs[0].text
        end = time.monotonic() + 20
        while remote.state != "failed" and time.monotonic() < end:
            time.sleep(0.05)
        assert remote.state == "failed"
        assert "nothing listens" in str(remote.submit(PROMPT).result(30).error)
    eventually(lambda: not llm.running())
