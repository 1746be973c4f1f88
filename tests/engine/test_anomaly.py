"""Anomaly mode: who is named for a NaN in a weight, in a kernel and in the cache, and that nobody else suffers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.architectures.zoo import BY_NAME
from tests.engine.fakes import LONG, assert_idle, greedy
from tests.engine.models import tokenizer
from yaie_engine import LLM, YaieError
from yaie_engine.errors import AnomalyError

pytestmark = pytest.mark.filterwarnings("ignore")
A, B = [5, 9, 7, 40, 33, 21, 8, 60, 11], [70, 12, 44, 3]
PARAMS = greedy(6, ignore_eos=True)
CASES = {  # where in the second layer the bad weight goes; all three tiers, fused experts and a state that is kept
    "llama": "model.layers.1.mlp.down_proj",
    "gemma3": "model.layers.1.self_attn.o_proj",
    "qwen3": "model.layers.1.self_attn.q_norm",
    "gpt2": "transformer.h.1.mlp.c_fc",
    "bloom": "transformer.h.1.mlp.dense_h_to_4h",
    "mamba": "backbone.layers.1.mixer.out_proj",
}


@contextmanager
def engine(name: str, dtype: torch.dtype = torch.float32, **more: Any) -> Iterator[LLM]:
    """An engine for a model of the zoo, whose small chunks split prompt A."""
    model = BY_NAME[name].build().to(dtype)
    settings: dict[str, Any] = {"block_size": 4, "num_blocks": 48, "long_prefill_token_threshold": 4, **more}
    with LLM(model, tokenizer=tokenizer(), **settings) as llm:
        yield llm


def model_of(llm: LLM) -> Any:
    return llm._engine.runner._weights.loaded.model


def error_of(llm: LLM, prompt: list[int]) -> AnomalyError:
    output = llm.submit(prompt, PARAMS).result(LONG)
    assert output.outputs[0].finish_reason == "error"
    assert isinstance(output.error, AnomalyError), output.error
    assert output.error.request_id == output.request_id
    return output.error


@contextmanager
def broken(llm: LLM, module: str) -> Iterator[None]:
    """One NaN in the weight of a module."""
    weight = model_of(llm).get_submodule(module).weight
    with torch.no_grad():
        kept = weight.clone()
        weight.view(-1)[0] = math.nan
        yield
        weight.copy_(kept)


@pytest.mark.parametrize("name", CASES)
def test_a_bad_weight_is_named_and_clean_runs_stay_equal(name: str) -> None:
    with engine(name) as llm:
        plain = llm.generate([A, B], PARAMS, use_tqdm=False)
        llm.reset()
        llm.detect_anomaly()
        again = llm.generate([A, B], PARAMS, use_tqdm=False)
        for left, right in zip(plain, again, strict=True):
            assert right.error is None and left.outputs[0].token_ids == right.outputs[0].token_ids
            assert left.outputs[0].cumulative_logprob == right.outputs[0].cumulative_logprob
        llm.reset()
        with broken(llm, CASES[name]):
            error = error_of(llm, A)
            assert (error.module, error.position) == (CASES[name], 0)
            assert "look at its weights" in str(error)
        assert llm.generate([A], PARAMS, use_tqdm=False)[0].num_cached_tokens == 0
        llm.detect_anomaly(False)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model_of(llm).modules())
        assert llm.generate([A], PARAMS, use_tqdm=False)[0].outputs[0].token_ids == plain[0].outputs[0].token_ids
        assert_idle(llm)


@pytest.mark.parametrize("where", ["layer", "attention", "logits"])
def test_only_the_request_with_the_bad_row_fails(where: str) -> None:
    """A kernel that goes wrong for one token: its neighbour in the same step gets its own answer."""
    with engine("llama") as llm:
        right = llm.generate([A, B], PARAMS, use_tqdm=False)
        llm.reset()
        llm.detect_anomaly()
        module = model_of(llm).get_submodule({"layer": "model.layers.2", "attention": "model.layers.1"}.get(where, ""))
        spoil = Spoiler(bad_token=B[-1])
        if where == "attention":
            # What reaches o_proj: the attention's own result, between two modules.
            module = module.self_attn.o_proj
            handle = module.register_forward_pre_hook(lambda _, args: (spoil(args[0]), *args[1:]), prepend=True)
        elif where == "layer":
            handle = module.register_forward_hook(lambda _, args, output: spoil(output), prepend=True)
        else:
            handle = model_of(llm).lm_head.register_forward_hook(lambda _, args, out: spoil(out), prepend=True)
        embed = model_of(llm).model.embed_tokens.register_forward_pre_hook(lambda _, args: spoil.look(args[0]))
        good, bad = llm.submit(A, PARAMS), llm.submit(B, PARAMS)
        error = bad.result(LONG).error
        handle.remove()
        embed.remove()
        assert good.result(LONG).outputs[0].token_ids == right[0].outputs[0].token_ids
        assert isinstance(error, AnomalyError) and spoil.done
        named = {"layer": "model.layers.2", "attention": "model.layers.1.self_attn", "logits": "lm_head"}[where]
        assert (error.module, error.position, error.request_id) == (named, len(B) - 1, bad.request_id)
        assert llm.submit(B, PARAMS).result(LONG).outputs[0].token_ids == right[1].outputs[0].token_ids
        assert_idle(llm)


class Spoiler:
    """Makes the row of the first token with a certain id NaN, once."""

    def __init__(self, bad_token: int) -> None:
        self.bad_token, self.row, self.last, self.done = bad_token, None, 0, False

    def look(self, ids: torch.Tensor) -> None:
        found = (ids[0] == self.bad_token).nonzero()
        self.row = int(found[0]) if len(found) else None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if self.done or self.row is None:
            return rows
        self.done = True
        rows = rows.clone()
        rows[0, self.row if rows.shape[1] > self.row else -1, 0] = math.nan
        return rows


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_damage_in_the_cache_is_found_and_thrown_away(name: str) -> None:
    """Also where other texts go on from the damaged prefix."""
    with engine(name) as llm:
        want = llm.generate([[*A, 7, 8]], PARAMS, use_tqdm=False)[0].outputs[0].token_ids
        llm.reset()
        for tail in ([], [50, 51]):
            llm.submit([*A, *tail], PARAMS).result(LONG)
        llm.detect_anomaly()
        held = llm.snapshot().tree
        block = next(node.blocks[0] for node in held if node.blocks)
        llm._engine.call(lambda: llm._engine.runner.cache.layers[1][0][block, :, 2].fill_(math.nan))
        error = error_of(llm, [*A, 7, 8])
        assert f"K of position 2 (block {block}) is damaged in the KV cache" in str(error)
        again = llm.submit([*A, 7, 8], PARAMS).result(LONG)
        assert again.error is None and again.outputs[0].token_ids == want and again.num_cached_tokens == 0
        assert_idle(llm)


def test_it_survives_sleep_and_is_free_when_off(llm: LLM) -> None:
    llm.detect_anomaly()
    llm.sleep()
    assert not any(module._forward_hooks for module in model_of(llm).modules())
    llm.wake_up()
    assert llm.detects_anomaly
    with broken(llm, "model.layers.0.self_attn.v_proj"):
        assert error_of(llm, A).module == "model.layers.0.self_attn.v_proj"
    llm.detect_anomaly(False)
    assert not any(module._forward_hooks for module in model_of(llm).modules())
    with broken(llm, "model.layers.0.self_attn.v_proj"):
        error = llm.submit(A, PARAMS).result(LONG).error
        assert isinstance(error, YaieError) and not isinstance(error, AnomalyError)
