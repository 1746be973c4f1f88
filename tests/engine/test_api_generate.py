"""The front of the engine: prompts in, results out."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, FakeRunner, ask, assert_idle, greedy, scripted, streamed, swap_runner, tokens
from tests.engine.models import EOS, TEMPLATE, VOCAB, Reference
from yaie_engine import LLM, CapacityError, EngineDeadError, RequestError, RequestTimeout, SamplingParams


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("abc", ["abc"]),
        (["abc", "de"], ["abc", "de"]),
        (("abc", "de"), ["abc", "de"]),
        ([64, 65], [[64, 65]]),
        ([[64, 65], [66]], [[64, 65], [66]]),
        (["abc", [64]], ["abc", [64]]),
    ],
)
def test_prompts_of_every_kind_in_order(llm: LLM, reference: Reference, prompts: Any, expected: list[Any]) -> None:
    outputs = llm.generate(prompts, greedy(6), use_tqdm=False)
    assert len(outputs) == len(expected)
    for output, prompt in zip(outputs, expected, strict=True):
        ids = llm.tokenize(prompt) if isinstance(prompt, str) else prompt
        assert list(output.prompt_token_ids) == ids
        assert output.prompt == (prompt if isinstance(prompt, str) else None)
        assert tokens(output) == reference.greedy(ids, 6) and output.finished


def test_parameters_one_by_one(llm: LLM, reference: Reference) -> None:
    outputs = llm.generate([[1, 2], [3, 4]], [greedy(3), greedy(5)], use_tqdm=False)
    assert [tokens(output) for output in outputs] == [reference.greedy([1, 2], 3), reference.greedy([3, 4], 5)]
    with pytest.raises(RequestError, match="1 sampling parameters for 2 prompts"):
        llm.generate([[1, 2], [3, 4]], [greedy(3)], use_tqdm=False)
    for wrong in ({"max_tokens": 3}, [3], "greedy"):
        with pytest.raises(RequestError, match="params"):
            llm.generate([[1, 2]], wrong, use_tqdm=False)


def test_one_bad_prompt_queues_nothing_and_is_named(llm: LLM) -> None:
    before = llm.snapshot().step
    with pytest.raises(RequestError, match=r"prompt 2: prompt\[1\]=259: a token id from 0 to 258"):
        llm.generate([[1], [2], [3, VOCAB]], greedy(3), use_tqdm=False)
    for ids in ([1, -1], [True, 1], [1, 2.0], [2**70]):
        with pytest.raises(RequestError, match=r"a token id|a string"):
            llm.generate([ids], greedy(3), use_tqdm=False)
    with pytest.raises(RequestError, match="lone surrogate"):
        llm.generate("a\ud800", greedy(3), use_tqdm=False)
    assert llm.snapshot().step == before


def test_more_prompts_than_may_wait(make_llm: Make, reference: Reference) -> None:
    llm = make_llm(max_waiting=2, max_num_seqs=2)
    prompts = [[i, i + 1, i + 2] for i in range(20)]
    outputs = llm.generate(prompts, greedy(4, n=1), use_tqdm=True)
    assert [tokens(output) for output in outputs] == [reference.greedy(prompt, 4) for prompt in prompts]
    many = llm.generate(prompts[:4], SamplingParams(n=5, max_tokens=2), use_tqdm=False)
    assert [len(output.outputs) for output in many] == [5] * 4
    assert_idle(llm)


def test_results_are_plain_data(llm: LLM) -> None:
    params = SamplingParams(n=2, max_tokens=4, logprobs=2, prompt_logprobs=1, seed=1, logit_bias={3: -100.0})
    for output in (ask(llm, "plain data", params), ask(llm, "plain data")):
        plain = json.loads(json.dumps(output.to_dict()))
        assert plain["prompt"] == "plain data" and plain["error"] is None and plain["finished"] is True
        assert plain["outputs"][0]["token_ids"] == tokens(output)
        assert set(plain) == {
            "request_id", "prompt", "prompt_token_ids", "prompt_logprobs", "outputs", "finished", "num_cached_tokens",
            "error", "metrics",
        }  # fmt: skip
        assert set(plain["metrics"]) == {
            "queue_s", "ttft_s", "tpot_s", "total_s", "reuse", "num_computed_tokens", "num_preemptions",
            "first_step", "last_step",
        }  # fmt: skip
        times = output.metrics
        assert times.ttft_s is not None and 0 <= times.queue_s <= times.ttft_s <= times.total_s
    json.dumps(llm.snapshot().to_dict())


def test_logprobs_are_those_of_the_model(llm: LLM, reference: Reference) -> None:
    prompt = [5, 6, 7, 8, 9]
    output = ask(llm, prompt, SamplingParams(max_tokens=8, seed=2, temperature=1.5, logprobs=3, ignore_eos=True))
    choice = output.outputs[0]
    truth = reference.logprobs([*prompt, *tokens(output)])
    assert choice.logprobs is not None and len(choice.logprobs) == 8
    for position, (token_id, entry) in enumerate(zip(tokens(output), choice.logprobs, strict=True), len(prompt) - 1):
        assert next(iter(entry)) == token_id and 3 <= len(entry) <= 4
        for each, item in entry.items():
            assert item.logprob == pytest.approx(float(truth[position, each]), abs=1e-4)
    total = sum(entry[token_id].logprob for token_id, entry in zip(tokens(output), choice.logprobs, strict=True))
    assert choice.cumulative_logprob == pytest.approx(total, abs=1e-6)
    bare = ask(llm, prompt, greedy(3))
    assert bare.outputs[0].logprobs is None and bare.prompt_logprobs is None
    assert ask(llm, prompt, greedy(3, logprobs=0)).outputs[0].logprobs is not None


def test_score_is_the_log_softmax(make_llm: Make, reference: Reference) -> None:
    llm = make_llm(num_blocks=64)
    for length in (1, 2, 20, 256):
        prompt = [(13 * i) % 250 for i in range(length)]
        truth, scores = reference.logprobs(prompt), llm.score(prompt)
        assert scores[0] is None and len(scores) == length
        for position in range(1, length):
            assert scores[position] == pytest.approx(float(truth[position - 1, prompt[position]]), abs=1e-4)
    with pytest.raises(CapacityError):
        llm.score([1] * 257)
    swap_runner(llm, FakeRunner(VOCAB, lambda seq: {1: math.nan}))
    with pytest.raises(Exception, match="NaN"):
        llm.score([1, 2, 3])


def test_text_and_ids(llm: LLM) -> None:
    ids = llm.tokenize("héllo 🙂</s>")
    assert ids[-1] == EOS and llm.detokenize(ids) == "héllo 🙂</s>"
    with pytest.raises(RequestError):
        llm.tokenize(3)  # type: ignore[arg-type]
    with pytest.raises(RequestError):
        llm.detokenize([-1])


def test_chat_uses_the_template(llm: LLM, reference: Reference) -> None:
    messages = [{"role": "user", "content": "hi"}]
    ids = llm.tokenize("<|user|>hi\n")
    assert "add_generation_prompt" not in TEMPLATE and llm.chat_ids(messages) == ids
    one = llm.chat(messages, greedy(5), use_tqdm=False)
    assert [tokens(output) for output in one] == [reference.greedy(ids, 5)]
    several = llm.chat([messages, [*messages, *messages]], greedy(5), use_tqdm=False)
    assert tokens(several[0]) == tokens(one[0]) and len(several) == 2
    assert llm.submit_chat(messages, greedy(5)).result(LONG).outputs == one[0].outputs
    with pytest.raises(RequestError, match="tools"):
        llm.chat(messages, greedy(5), use_tqdm=False, toools=[])


def test_seeds_do_not_depend_on_neighbours(make_llm: Make) -> None:
    params = SamplingParams(max_tokens=12, seed=9, temperature=1.3)
    alone, crowded = make_llm(), make_llm(num_blocks=200)
    expected = ask(alone, [1, 2, 3], params)
    for crowd in (1, 7):
        prompts = [[50 + i, i] for i in range(crowd)] + [[1, 2, 3]]
        others = [SamplingParams(max_tokens=20, temperature=1.0 + i / 10) for i in range(crowd)]
        outputs = crowded.generate(prompts, [*others, params], use_tqdm=False)
        assert outputs[-1].outputs[0].text == expected.outputs[0].text
    for seed in (-(2**63), -1, 2**64 - 1):
        assert ask(alone, [1, 2, 3], params.replace(seed=seed)).error is None


def test_without_prefix_caching_nothing_stays(make_llm: Make, reference: Reference) -> None:
    llm = make_llm(enable_prefix_caching=False)
    prompt = list(range(10))
    for _ in range(2):
        output = ask(llm, prompt, greedy(5))
        assert tokens(output) == reference.greedy(prompt, 5) and output.num_cached_tokens == 0
    shared = ask(llm, prompt, SamplingParams(n=3, max_tokens=4, ignore_eos=True, seed=1))
    assert shared.num_cached_tokens == 0
    assert shared.metrics.num_computed_tokens == 10 + 1 + 1 + 3 * 3, "choices still share their prompt"
    assert_idle(llm)
    snapshot = llm.snapshot()
    assert snapshot.blocks.free == snapshot.blocks.total and len(snapshot.tree) == 1


def test_salts_keep_prefixes_apart(make_llm: Make) -> None:
    llm = make_llm()
    prompt = list(range(12))
    for salt, hit in (("a", 0), ("a", 11), ("b", 0), (None, 0), (None, 11), ("b", 11)):
        assert ask(llm, prompt, greedy(3, cache_salt=salt)).num_cached_tokens == hit
    names = {node.namespace for node in llm.snapshot().tree}
    assert len(names) == 3 and not any(name in ("salt:a", "salt:b") for name in names), "a salt is not shown"
    with pytest.raises(RequestError, match="cache_salt"):
        greedy(3, cache_salt="")


def test_higher_priorities_are_served_first(make_llm: Make) -> None:
    llm = make_llm(max_num_seqs=1)
    first = llm.submit([1, 2, 3], greedy(40, ignore_eos=True))
    assert next(iter(first))
    late = [llm.submit([i, i], greedy(2, priority=priority)) for i, priority in enumerate((0, 5, -3, 5))]
    for handle in (first, *late):
        handle.wait(LONG)
    order = [record.request_id for record in llm.history()]
    assert order == [handle.request_id for handle in (first, late[1], late[3], late[0], late[2])]


def test_default_parameters_of_the_engine(make_llm: Make) -> None:
    llm = make_llm(sampling_defaults={"max_tokens": 3, "temperature": 0})
    assert len(tokens(llm.generate([1, 2, 3], use_tqdm=False)[0])) <= 3
    assert llm.submit([1, 2, 3]).result(LONG).outputs == ask(llm, [1, 2, 3], greedy(3)).outputs
    plain = make_llm(num_blocks=64)
    assert len(tokens(plain.generate([1, 2, 3], SamplingParams(ignore_eos=True), use_tqdm=False)[0])) == 253


def test_history_and_reset(make_llm: Make) -> None:
    llm = make_llm()
    outputs = [ask(llm, [i, i, i, i, i], greedy(3)) for i in range(4)]
    records = llm.history()
    assert [record.request_id for record in records] == [output.request_id for output in outputs]
    assert llm.history(2) == records[-2:] and llm.history(0) == []
    assert [list(record.output_token_ids[0]) for record in records] == [tokens(output) for output in outputs]
    cached = llm.snapshot().blocks.cached
    assert cached > 0 and llm.reset() == cached and llm.reset() == 0
    assert ask(llm, [1] * 5, greedy(3)).num_cached_tokens == 0


def test_a_request_timeout_is_an_error_of_its_own(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    swap_runner(llm, FakeRunner(VOCAB, lambda seq: {70: 1.0}, before=lambda plan: time.sleep(0.01)))
    slow, quick = [
        llm.submit([i, 2, 3], SamplingParams(max_tokens=most, timeout=limit, temperature=0))
        for i, (most, limit) in enumerate(((200, 0.1), (3, 100.0)))
    ]
    output = slow.result(LONG)
    assert isinstance(output.error, RequestTimeout)
    assert output.outputs[0].finish_reason == "error" and output.outputs[0].stop_reason == "timeout"
    assert 0 < len(tokens(output)) < 200 and output.outputs[0].text == "".join(map(str, slow))
    assert quick.result(LONG).outputs[0].finish_reason == "length"
    assert_idle(llm)
    assert llm.snapshot().counters.requests == {"error": 1, "length": 1}


def test_a_timeout_of_the_engine_also_ends_what_waits(make_llm: Make) -> None:
    llm = make_llm(max_num_seqs=1, request_timeout=0.1)
    swap_runner(llm, FakeRunner(VOCAB, lambda seq: {70: 1.0}, before=lambda plan: time.sleep(0.01)))
    outputs = llm.generate([[1], [2]], greedy(100), use_tqdm=False)
    assert [output.outputs[0].stop_reason for output in outputs] == ["timeout", "timeout"]
    assert outputs[1].metrics.ttft_s is None and tokens(outputs[1]) == []
    assert_idle(llm)


def test_with_and_close(make_llm: Make) -> None:
    with make_llm() as llm:
        assert llm.state == "ready" and "ready" in repr(llm)
    assert llm.state == "closed"
    llm.close()
    for action in (
        lambda: llm.generate([1, 2], greedy(2), use_tqdm=False),
        lambda: llm.submit([1, 2]),
        lambda: llm.score([1, 2]),
        llm.check,
        llm.running,
        llm.reset,
        lambda: llm.cancel(),
    ):
        with pytest.raises(EngineDeadError, match="closed"):
            action()
    snapshot = llm.snapshot()
    assert (snapshot.state, snapshot.blocks.total, snapshot.requests) == ("closed", 0, ())
    json.dumps(snapshot.to_dict())
    assert llm.tokenize("a") and llm.history() == []


def test_closing_ends_what_runs_and_what_waits(make_llm: Make) -> None:
    llm = make_llm(max_num_seqs=1)
    handles = [llm.submit([1, 2, 3], greedy(100, ignore_eos=True)) for _ in range(3)]
    assert next(iter(handles[0]))
    llm.close()
    results = [handle.result(LONG) for handle in handles]
    assert all(output.outputs[0].finish_reason in ("cancelled", "error") and output.finished for output in results)
    assert tokens(results[0])
    assert ["".join(map(str, handle)) for handle in handles[1:]] == ["", ""]


def test_streamed_text_is_the_text(llm: LLM) -> None:
    scripted(llm, llm.tokenize("Grüße 🙂!"))
    deltas, output = streamed(llm, "x", greedy(50))
    assert output.outputs[0].text == "Grüße 🙂!" and len(deltas) == len("Grüße 🙂!")
