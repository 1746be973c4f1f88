"""Kernels in other architectures: each layer against the reference at load, with the windows, caps and sinks of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from yaie_engine import ConfigError, EngineConfig
from yaie_engine.loader import load_model

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 256,
}
MODELS: dict[str, tuple[Callable[[], Any], torch.dtype]] = {
    "window": (lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=24)), torch.bfloat16),
    "window and softcap": (
        lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, query_pre_attn_scalar=64, sliding_window=16)),
        torch.bfloat16,
    ),
    "sinks and window": (
        lambda: GptOssForCausalLM(GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=20)),
        torch.bfloat16,
    ),
    "head norms, float16": (lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)), torch.float16),
}
EMULATED = EngineConfig(attention_backend="emulated")

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator is built by g++"),
    pytest.mark.timeout(280),
]


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_equals_the_reference(name: str) -> None:
    build, dtype = MODELS[name]
    torch.manual_seed(3)
    loaded = load_model(EMULATED, build().to(dtype).eval())
    assert (loaded.tier, loaded.backend.name) == ("flat", "emulated")
    assert "every layer equals the reference within" in loaded.backend.reason
    print(loaded.reason)


def test_a_head_size_without_a_kernel_is_refused_with_those_there_are() -> None:
    model = Qwen3ForCausalLM(Qwen3Config(**{**SIZES, "head_dim": 48})).to(torch.bfloat16).eval()
    with pytest.raises(ConfigError, match="head_dim 48 has no attention kernel; there are 64, 80, 96"):
        load_model(EMULATED, model)
