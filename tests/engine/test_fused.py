"""Fused modules: what is swapped, what is refused and why, and that a closed engine leaves a model as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    HunYuanDenseV1Config,
    HunYuanDenseV1ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.engine.conftest import Make
from tests.engine.fakes import greedy, tokens
from tests.engine.models import random_llama, tokenizer
from tests.engine.standin import REFERENCES, standin, standin_kernels
from yaie_engine import LLM, EngineConfig
from yaie_engine.attention import Rotation, StepSlot, attach, leave_rotation
from yaie_engine.backends.reference import ReferenceAttention
from yaie_engine.batch import FlatBatch
from yaie_engine.fused import fuse
from yaie_engine.loader import load_model
from yaie_engine.step_memory import largest_step

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
PROMPTS = [[1, 2, 3, 4, 5], [9, 8], list(range(20, 50))]


def llama(**changes: Any) -> Any:
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})).to(torch.bfloat16).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.arange(3, 23).unsqueeze(0), use_cache=False).logits
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_a_llama_is_fused_whole_and_gives_the_same_logits(dtype: torch.dtype, bias: bool) -> None:
    model = llama(mlp_bias=bias, attention_bias=bias).to(dtype)
    plain, calls = logits(model), Counter[str]()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    fused = fuse(model, standin_kernels(calls), owns_weights=True)
    assert fused.swapped == {"rms_norm": 5, "silu": 2, "rotary": 2} and not fused.refused
    assert str(fused) == "fused: rms_norm 5, silu 2, rotary 2"
    calls.clear()
    ours = logits(model)
    fused.settle()
    assert str(fused) == "fused: rms_norm 5, residual 3, silu 2, rotary 2"
    assert calls == {"rms_norm": 5, "silu_and_mul": 2, "rotary_embedding": 2}
    assert (ours - plain).float().square().mean().sqrt() < 0.02 * plain.float().std()
    fused.restore()
    calls.clear()
    assert torch.equal(logits(model), plain) and not calls
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())


def test_joined_weights_are_there_once() -> None:
    model = llama()
    fuse(model, standin_kernels(), owns_weights=True)
    mlp = model.model.layers[0].mlp
    gate, up = mlp.gate_proj.weight, mlp.up_proj.weight
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    assert up.untyped_storage().nbytes() == 2 * up.nbytes


def test_weights_of_somebody_else_are_not_joined() -> None:
    model = llama()
    fused = fuse(model, standin_kernels(), owns_weights=False)
    assert fused.swapped == {"rms_norm": 5, "rotary": 2}
    assert {(kind, reason) for _, kind, reason in fused.refused} == {
        ("silu", "its weights belong to the caller, and joining them would copy them")
    }
    assert str(fused).endswith("not silu 2 (its weights belong to the caller, and joining them would copy them)")


@pytest.mark.parametrize(
    ("build", "swapped", "refused"),
    [
        (
            lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
            {"rms_norm": 9, "silu": 2, "rotary": 2},
            {},
        ),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, query_pre_attn_scalar=8)),
            {"rotary": 2},
            {
                "rms_norm": "off by",
                "silu": "no kernel computes its activation",
                "residual": "its norms are the model's own",
            },
        ),
        (
            lambda: LlamaForCausalLM(LlamaConfig(**{**SIZES, "hidden_act": "gelu"})),
            {"rms_norm": 5, "rotary": 2},
            {"silu": "no kernel computes its activation"},
        ),
        (
            lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**{**SIZES, "rotary_pct": 0.5})),
            None,
            {},
        ),
    ],
    ids=["qwen3", "gemma2", "gelu", "neox"],
)
def test_only_what_equals_the_module_is_swapped(
    build: Callable[[], Any], swapped: dict[str, int] | None, refused: dict[str, str]
) -> None:
    torch.manual_seed(2)
    model = build().to(torch.bfloat16).eval()
    for module in model.modules():  # norms that start as ones would hide how a weight is used
        if "Norm" in type(module).__name__:
            nn.init.normal_(module.weight, 0.2, 0.5)
    plain = logits(model)
    fused = fuse(model, standin_kernels(), owns_weights=True)
    if swapped is not None:
        assert dict(fused.swapped) == swapped
    for kind, reason in refused.items():
        assert all(reason in why for _, other, why in fused.refused if other == kind)
        assert any(other == kind for _, other, _ in fused.refused)
    assert (logits(model) - plain).float().square().mean().sqrt() < 0.03 * plain.float().std()


class GatedRMSNorm(nn.Module):
    """A norm that may be given a gate: one that is called with it must not be swapped."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32, dtype=torch.bfloat16))
        self.variance_epsilon = 1e-6

    def forward(self, hidden: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
        normed = torch.nn.functional.rms_norm(hidden, (32,), self.weight, self.variance_epsilon)
        return normed if gate is None else normed * gate


def test_a_norm_with_a_gate_is_left_alone() -> None:
    assert not fuse(nn.ModuleList([GatedRMSNorm()]), standin_kernels(), owns_weights=True).swapped


def test_a_kernel_with_another_formula_is_refused_with_how_far_it_is_off() -> None:
    def without_weight(hidden: Any, weight: Any, *rest: Any) -> None:
        REFERENCES["rms_norm"](hidden, torch.ones_like(weight) * 1.05, *rest)

    def crashing(*_: Any) -> None:
        raise ValueError("no kernel for this shape")

    model = llama()
    kernels = replace(standin_kernels(), rms_norm=without_weight, silu_and_mul=crashing)
    fused = fuse(model, kernels, owns_weights=True)
    assert fused.swapped == {"rotary": 2}
    reasons = {kind: reason for _, kind, reason in fused.refused}
    assert reasons["rms_norm"].startswith("the kernel's result is off by ")
    assert reasons["rms_norm"].endswith("of its size, allowed are 3.9e-03")
    assert reasons["silu"] == "ValueError: no kernel for this shape"


def test_an_engine_on_kernels_fuses_says_so_and_gives_the_same_tokens(make_llm: Make) -> None:
    calls: Counter[str] = Counter()
    with standin(standin_kernels(calls)):
        llm = make_llm(attention_backend="emulated", dtype="float32", block_size=16)
    assert llm.snapshot().model.reason.endswith("; fused: rms_norm 7, residual 5, silu 3, rotary 3, rotary_write 3")
    plain = make_llm(dtype="float32", block_size=16)
    calls.clear()
    for params in (greedy(10),):
        expected = [tokens(out) for out in plain.generate(PROMPTS, params, use_tqdm=False)]
        assert [tokens(out) for out in llm.generate(PROMPTS, params, use_tqdm=False)] == expected
    assert calls["rms_norm"] and calls["silu_and_mul"] and calls["rotary_reshape_and_cache"]
    assert not calls["rotary_embedding"] and not calls["reshape_and_cache"]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: HunYuanDenseV1ForCausalLM(HunYuanDenseV1Config(**SIZES, use_qk_norm=True)),
            "not rotary_write 2 (the model with it does not agree with the plain one)",
        ),
        (lambda: Phi3ForCausalLM(Phi3Config(**SIZES, pad_token_id=0)), "rotary_write 2"),
    ],
    ids=["normed behind the rotation", "one joint projection"],
)
def test_a_rotation_is_left_to_the_write_only_where_nothing_comes_in_between(
    build: Callable[[], Any], said: str
) -> None:
    torch.manual_seed(2)
    model = build().to(torch.bfloat16).eval()
    with standin(standin_kernels()):
        loaded = load_model(EngineConfig(attention_backend="emulated", block_size=16), model)
    assert loaded.tier == "flat" and str(loaded.fused).endswith(said), loaded.fused
    assert loaded.fused is not None and loaded.fused.swapped["rotary"] == 2


def test_what_a_rotation_waits_for_must_come() -> None:
    module, slot = nn.Linear(2, 2), StepSlot()
    attach(module, slot)
    rotation = Rotation(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2), (torch.ones(1, 2), torch.ones(1, 2)))
    assert not leave_rotation(module, rotation) and slot.rotation is None
    slot.step = ReferenceAttention().step(FlatBatch(largest_step(1, 1, 4, 4), 4, torch.device("cpu")))
    assert leave_rotation(module, rotation)
    with pytest.raises(ValueError, match="left to the attention, and none followed"):
        leave_rotation(module, rotation)


def test_a_write_that_rotates_otherwise_is_refused() -> None:
    def late(query: Any, key: Any, value: Any, cos: Any, sin: Any, *rest: Any) -> None:
        REFERENCES["rotary_reshape_and_cache"](query, key, value, cos.flip(0), sin.flip(0), *rest)

    fused = fuse(llama(), replace(standin_kernels(), rotary_reshape_and_cache=late), owns_weights=True)
    reasons = {kind: reason for _, kind, reason in fused.refused}
    assert fused.swapped["rotary"] == 2 and reasons["rotary_write"].startswith("the kernel's result is off by ")


def test_a_model_object_stays_as_it_was() -> None:
    model = random_llama().to(torch.bfloat16)
    plain = logits(model)
    with standin(standin_kernels()):
        llm = LLM(model, tokenizer=tokenizer(), attention_backend="emulated", block_size=16, num_blocks=16)
    assert "rms_norm 7" in llm.snapshot().model.reason and "not silu 3" in llm.snapshot().model.reason
    assert torch.equal(logits(model), plain)
    llm.close()
    assert torch.equal(logits(model), plain)
    assert not any("forward" in vars(module) for module in model.modules())
