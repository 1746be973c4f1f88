"""The whole engine on emulated kernels, against the reference backend: an end-to-end proof without a GPU.

Both run the bundled model in bfloat16. Kernels and reference round in different places, so the tokens must be equal
wherever the reference prefers its token by more than BOUND; at the first token of a request that is not, the two
texts part and the rest of that request proves nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.graph_recorder import GraphRecorder, RecordingLauncher
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_engine import LLM, RequestOutput, SamplingParams
from yaie_engine.backends import choose
from yaie_engine.runner import ModelRunner

BOUND = 0.25
"""Log-probability. Two units in the last place of a bfloat16 logit between 16 and 32, as the model has them."""
SETTINGS: dict[str, Any] = {
    "dtype": "bfloat16",
    "block_size": 16,
    "num_blocks": 48,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,  # less than the prompts have left after a step, whenever they come in
    "long_prefill_token_threshold": 20,
}
STORY = "Once upon a time there was a small engine that lived in a notebook. It had a friend, a little red lamp."
PROMPTS = [
    f"{STORY} Every morning it",
    f"{STORY} One day the",
    "The capital of the country is",
    "2 + 3 =",
]
PARAMS = SamplingParams(temperature=0, max_tokens=8, logprobs=2, ignore_eos=True)

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator is built by g++"),
    pytest.mark.timeout(280),
]


@pytest.fixture(scope="module")
def reference() -> Iterator[LLM]:
    with LLM("tiny", attention_backend="reference", **SETTINGS) as llm:
        yield llm


@pytest.fixture(scope="module")
def emulated() -> Iterator[LLM]:
    with LLM("tiny", attention_backend="emulated", **{**SETTINGS, "dtype": "auto"}) as llm:
        yield llm


def margins(output: RequestOutput) -> list[float]:
    """By how much the reference prefers each of its tokens to the next best."""
    found = []
    for row in output.outputs[0].logprobs or ():
        best, second = sorted((entry.logprob for entry in row.values()), reverse=True)[:2]
        found.append(best - second)
    return found


def compare(ours: list[RequestOutput], plain: list[RequestOutput]) -> None:
    """Equal tokens up to the first that was preferred by less than BOUND."""
    compared = total = 0
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.error is None and theirs.error is None
        pairs = zip(mine.outputs[0].token_ids, theirs.outputs[0].token_ids, margins(theirs), strict=True)
        total += len(theirs.outputs[0].token_ids)
        for position, (found, expected, margin) in enumerate(pairs):
            if found != expected:
                assert margin <= BOUND, f"token {position}: {found}, the reference has {expected} by {margin:.3f}"
                break
            compared += 1
    print(
        f"bound {BOUND}: {compared} of {total} tokens equal, smallest margin {min(map(min, map(margins, plain))):.3f}"
    )
    assert compared >= total / 2  # else the proof would say little


def test_the_backend_says_what_it_is(emulated: LLM) -> None:
    model = emulated.snapshot().model
    assert (model.attention_backend, model.dtype, model.device, model.tier) == ("emulated", "bfloat16", "cpu", "flat")
    assert "every layer equals the reference within" in model.reason
    assert model.reason.endswith("; fused: rms_norm 13, residual 11, silu 6, rotary 6, rotary_write 6")
    print(model.reason)


def test_tokens_equal_those_of_the_reference(emulated: LLM, reference: LLM) -> None:
    """Several prompts in one batch, prefill in chunks; then again from a warm cache, and with a partly cached block."""
    first = [llm.generate(PROMPTS, PARAMS, use_tqdm=False) for llm in (emulated, reference)]
    compare(*first)
    assert any(step.num_prefill_tokens and step.num_decode_tokens for step in emulated.snapshot().steps)
    warm = [llm.generate(PROMPTS, PARAMS, use_tqdm=False) for llm in (emulated, reference)]
    compare(*warm)
    assert all(output.num_cached_tokens == len(output.prompt_token_ids) - 1 for output in warm[0])
    follower = [PROMPTS[0][:60] + " big dog"]
    compare(*(llm.generate(follower, PARAMS, use_tqdm=False) for llm in (emulated, reference)))
    emulated.check()


def test_recorded_launches_serve_every_later_batch(emulated: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grid and parameters of a launch are frozen at the capture, as in a CUDA graph: only device tensors change.

    The batches grow and shrink, contexts grow over block edges, and rows are padded to the captured sizes.
    """
    recorder = GraphRecorder()
    launcher = RecordingLauncher(EmulatorLauncher(), recorder)
    monkeypatch.setattr(choose, "make_launcher", lambda *_: launcher)
    prompts, params = PROMPTS[1:], SamplingParams(temperature=0, max_tokens=5, logprobs=2, ignore_eos=True)
    with LLM("tiny", attention_backend="emulated", **SETTINGS) as llm:
        runner = llm._engine.runner
        assert isinstance(runner, ModelRunner)
        llm._engine.call(lambda: runner.use_graphs(recorder.capture, 4, 128))
        replayed = llm.generate(prompts, params, use_tqdm=False)
        assert recorder.captures == 3 and recorder.replays >= 4
    compare(replayed, emulated.generate(prompts, params, use_tqdm=False))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "repetition_penalty": 1.3,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.4,
            "logit_bias": {40: 3.0, 50: -3.0},
            "min_tokens": 4,
            "logprobs": 3,
        },
    ],
    ids=["plain", "penalised"],
)
def test_sampled_tokens_are_drawn_by_the_kernel(emulated: LLM, changes: dict[str, Any]) -> None:
    """Penalties and draw are the reference sampler's: same seed, same tokens and log-probabilities."""
    params = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=5, max_tokens=6, ignore_eos=True, **changes)
    kernel = emulated.generate(PROMPTS[2:], params, use_tqdm=False)
    sampler = emulated._engine.sampler
    drawn, sampler._draw_kernel = sampler._draw_kernel, None
    assert drawn is not None
    try:
        torch_path = emulated.generate(PROMPTS[2:], params, use_tqdm=False)
    finally:
        sampler._draw_kernel = drawn
    assert [out.outputs[0].token_ids for out in kernel] == [out.outputs[0].token_ids for out in torch_path]
    assert [out.outputs[0].logprobs for out in kernel] == [out.outputs[0].logprobs for out in torch_path]
    assert (kernel[0].outputs[0].logprobs is None) == (not changes)
