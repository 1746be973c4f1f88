"""Anomaly mode with several choices, cancels and prefixes that came from elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, assert_idle, greedy
from tests.engine.test_anomaly import PARAMS, A, B, broken, engine, error_of, model_of
from yaie_cuda.cpu import build
from yaie_engine import LLM, SamplingParams
from yaie_engine.errors import AnomalyError

pytestmark = pytest.mark.filterwarnings("ignore")


def test_an_anomaly_of_one_choice_ends_its_request_and_no_other() -> None:
    with engine("llama") as llm:
        right = llm.generate([B], PARAMS, use_tqdm=False)[0].outputs[0].token_ids
        llm.reset()
        llm.detect_anomaly()
        several = SamplingParams(n=3, max_tokens=12, seed=1, temperature=1.5, ignore_eos=True)
        with broken(llm, "model.layers.1.mlp.down_proj"):
            output = llm.submit(A, several).result(LONG)
            assert isinstance(output.error, AnomalyError) and output.error.request_id == output.request_id
            assert {choice.finish_reason for choice in output.outputs} == {"error"}
        good = llm.submit(A, several).result(LONG)
        assert good.error is None and {len(choice.token_ids) for choice in good.outputs} == {12}
        assert llm.submit(B, PARAMS).result(LONG).outputs[0].token_ids == right
        assert_idle(llm)


def test_a_cancelled_request_leaves_the_watch_in_order() -> None:
    with engine("llama") as llm:
        right = llm.generate([B], PARAMS, use_tqdm=False)[0].outputs[0].token_ids
        llm.detect_anomaly()
        for count in range(1, 6):
            handle = llm.submit(A, greedy(40, ignore_eos=True))
            for _ in zip(range(count), handle, strict=False):
                pass
            other = llm.submit(B, PARAMS)
            handle.cancel()
            assert handle.result(LONG).error is None
            assert other.result(LONG).outputs[0].token_ids == right
        assert_idle(llm)


def test_damage_in_host_blocks_is_found_when_it_comes_back(make_llm: Make) -> None:
    """It is named as damage of the cache, forgotten, and the next answer is right."""
    llm = make_llm(num_blocks=13, num_cpu_blocks=64)
    prompt = [(1 + 7 * i) % 250 for i in range(40)]
    right = llm.generate([prompt], greedy(4, ignore_eos=True), use_tqdm=False)[0].outputs[0].token_ids
    for start in (2, 3, 4):
        llm.generate([[(start + 7 * i) % 250 for i in range(40)]], greedy(4, ignore_eos=True), use_tqdm=False)
    llm.detect_anomaly()

    def damage() -> None:
        with torch.inference_mode():
            for tensor in llm._engine.runner.host._tensors:  # type: ignore[attr-defined]
                tensor.fill_(math.nan)

    llm._engine.call(damage)
    bad = llm.submit(prompt, greedy(4, ignore_eos=True)).result(LONG)
    assert isinstance(bad.error, AnomalyError) and bad.error.in_cache
    assert "is damaged in the KV cache" in str(bad.error)
    llm.reset()
    again = llm.submit(prompt, greedy(4, ignore_eos=True)).result(LONG)
    assert again.error is None and again.outputs[0].token_ids == right
    assert_idle(llm)


@pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_with_kernels_of_the_cpu_clean_runs_stay_equal_and_a_bad_weight_is_named(dtype: torch.dtype) -> None:
    """Fused norms, gates and rotary positions run while it watches."""
    with engine("llama", dtype, attention_backend="cpu") as llm:
        assert "fused: rms_norm" in llm.snapshot().model.reason
        plain = [output.outputs[0] for output in llm.generate([A, B], PARAMS, use_tqdm=False)]
        llm.reset()
        llm.detect_anomaly()
        watched = [output.outputs[0] for output in llm.generate([A, B], PARAMS, use_tqdm=False)]
        assert [(each.token_ids, each.cumulative_logprob) for each in watched] == [
            (each.token_ids, each.cumulative_logprob) for each in plain
        ]
        for module in ("layers.1.mlp.down_proj", "layers.1.self_attn.o_proj", "layers.0.input_layernorm"):
            llm.reset()
            with broken(llm, f"model.{module}"):
                assert error_of(llm, A).module == f"model.{module}"
        assert llm.submit(A, PARAMS).result(LONG).outputs[0].token_ids == plain[0].token_ids
        llm.detect_anomaly(False)
        assert not any(each._forward_hooks or each._forward_pre_hooks for each in model_of(llm).modules())
        assert_idle(llm)


@pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
def test_weights_in_int8_that_were_laid_out_anew_are_watched_like_plain_ones() -> None:
    """A layer of its own, and one of three that are one product."""
    story = "Once upon a time"
    with LLM("tiny", attention_backend="cpu", quantization="int8", dtype="float32", num_blocks=64) as llm:
        right = llm.generate(story, PARAMS, use_tqdm=False)[0].outputs[0]
        llm.reset()
        llm.detect_anomaly()
        again = llm.generate(story, PARAMS, use_tqdm=False)[0].outputs[0]
        assert (again.token_ids, again.cumulative_logprob) == (right.token_ids, right.cumulative_logprob)
        for name in ("model.layers.1.mlp.down_proj", "model.layers.0.self_attn.q_proj"):
            layer = model_of(llm).get_submodule(name)
            scales = (layer.joined.product if hasattr(layer, "joined") else layer).scales
            with torch.inference_mode():
                kept, scales[0] = scales[0].clone(), math.nan
            llm.reset()
            error = llm.submit(story, PARAMS).result(LONG).error
            assert isinstance(error, AnomalyError) and (error.module, error.position) == (name, 0)
            with torch.inference_mode():
                scales[0] = kept
        assert llm.submit(story, PARAMS).result(LONG).outputs[0].token_ids == right.token_ids
