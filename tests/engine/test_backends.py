"""Attention backends: how one is chosen, and that an engine on kernels gives what the reference gives."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DeepseekV3Config, GPT2Config, LlamaConfig, PretrainedConfig

from tests.engine.conftest import Make
from tests.engine.fakes import ask, greedy, tokens
from tests.engine.models import random_llama, tokenizer
from tests.engine.standin import REFERENCES, NoLauncher, standin, standin_kernels
from yaie_engine import ConfigError, EngineConfig, SamplingParams
from yaie_engine.backends.choose import config_reason, head_dim, wish_for
from yaie_engine.loader import load_model
from yaie_engine.stages import READING_WEIGHTS
from yaie_engine.tiers.draw_check import draw_refusal

CPU = torch.device("cpu")
LONG = list(range(3, 50))
PROMPTS = [LONG, LONG[:21], [7], [9, 8, 7, 6, 5]]


def plain_config(**values: Any) -> Any:
    """A configuration of no known model."""
    made = PretrainedConfig()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def config(**settings: Any) -> EngineConfig:
    return EngineConfig(**settings)


@pytest.mark.parametrize("asked", ["auto", "reference"])
def test_a_cpu_takes_the_reference_and_says_why(asked: str) -> None:
    wish = wish_for(config(attention_backend=asked), CPU, torch.float32)
    assert wish.name == "reference"
    assert wish.reason


def test_cuda_without_a_gpu_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_cuda.device.unusable_reason", lambda index=0: "there is no NVIDIA driver")
    with pytest.raises(ConfigError, match=r"attention_backend='cuda': there is no NVIDIA driver; .*'auto'"):
        wish_for(config(attention_backend="cuda"), CPU, torch.bfloat16)


def test_a_usable_gpu_takes_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_cuda.device.unusable_reason", lambda index=0: "")
    gpu = torch.device("cuda", 0)
    assert wish_for(config(), gpu, torch.bfloat16).name == "cuda"
    assert wish_for(config(), gpu, torch.float32).name == "reference"
    assert "the model is in float32" in wish_for(config(), gpu, torch.float32).reason
    assert wish_for(config(), CPU, torch.bfloat16).reason == "the model is on the CPU"
    with pytest.raises(ConfigError, match="bfloat16 and float16, the model is in float32"):
        wish_for(config(attention_backend="cuda"), gpu, torch.float32)


def test_an_old_gpu_takes_the_reference_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_cuda.device.unusable_reason", lambda index=0: f"GPU {index} is too old")
    wish = wish_for(config(), torch.device("cuda", 1), torch.float16)
    assert (wish.name, wish.reason) == ("reference", "GPU 1 is too old")


def test_the_emulator_needs_a_compiler_a_cpu_and_a_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = config(attention_backend="emulated")
    with pytest.raises(ConfigError, match="bfloat16 and float16"):
        wish_for(emulated, CPU, torch.float32)
    with pytest.raises(ConfigError, match="give device='cpu'"):
        wish_for(emulated, torch.device("cuda", 0), torch.bfloat16)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match=r"g\+\+, which is not installed"):
        wish_for(emulated, CPU, torch.bfloat16)


def test_asking_for_cuda_in_a_load_is_refused_before_weights_are_read(folder: Path, make_llm: Make) -> None:
    with pytest.raises(ConfigError, match="attention_backend='cuda'"):
        make_llm(attention_backend="cuda")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"block_size": 8}, "block_size 8 is not a multiple of 16"),
        ({"block_size": 24}, "block_size 24 is not a multiple of 16"),
        ({"block_size": 16}, "head_dim 16 has no attention kernel; there are 64"),  # of the test model
    ],
)
@pytest.mark.parametrize("asked", ["emulated", "cuda", "auto"])
def test_what_no_kernel_serves_is_known_before_weights_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked: str, settings: dict[str, Any], why: str
) -> None:
    """Refused, or the reference is taken without a try. No running engine has to make room for it."""
    monkeypatch.setattr("yaie_engine.backends.choose.gpu_reason", lambda device: "")
    monkeypatch.setattr("yaie_engine.backends.choose.emulator_reason", lambda device: "")
    if settings["block_size"] != 16:
        monkeypatch.setattr("yaie_engine.backends.choose.head_dim", lambda model_config: 64)
    heard: list[str] = []
    wanted = config(model=str(folder), attention_backend=asked, dtype="bfloat16", **settings)
    objects = {"model": random_llama().bfloat16(), "tokenizer": tokenizer()}
    if asked == "auto":
        for given in ({}, objects):
            loaded = load_model(wanted, **given, progress=lambda what, _: heard.append(what))
            assert loaded.backend.name == "reference" and loaded.backend.reason.startswith(why)
        assert "compiling kernels" not in heard and "checking kernels" not in heard
        return
    for given in ({}, objects):
        with pytest.raises(ConfigError, match=f"attention_backend='{asked}': {why}.*'auto'"):
            load_model(wanted, **given, progress=lambda what, _: heard.append(what))
    assert READING_WEIGHTS not in heard and "probing" not in heard


@pytest.mark.parametrize(
    ("model_config", "size"),
    [
        (LlamaConfig(hidden_size=64, num_attention_heads=4), 16),
        (LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=128), 128),
        (GPT2Config(n_embd=96, n_head=2), 48),
        (DeepseekV3Config(), 0),
        (plain_config(), 0),
        (plain_config(hidden_size=100, num_attention_heads=3), 0),
        (plain_config(hidden_size=64, num_attention_heads=2, kv_channels=128), 0),
    ],
)
def test_the_size_of_a_key_is_told_by_configurations_that_know_it(model_config: Any, size: int) -> None:
    assert head_dim(model_config) == size
    assert (config_reason("cuda", model_config, torch.bfloat16, 16) == "") == (size in (0, 128))


def test_an_engine_on_kernels_gives_the_answers_of_the_reference(make_llm: Make) -> None:
    calls: Counter[str] = Counter()
    with standin(standin_kernels(calls)):
        kernels = make_llm(attention_backend="emulated", dtype="auto", block_size=16)
    plain = make_llm(dtype="bfloat16", block_size=16)
    model = kernels.snapshot().model
    assert (model.dtype, model.attention_backend, model.tier) == ("bfloat16", "emulated", "flat")
    assert "emulated attention: asked for; every layer equals the reference" in model.reason
    assert "reference attention: " in plain.snapshot().model.reason
    calls.clear()
    for llm in (kernels, plain):
        for _ in range(2):  # the second time from a warm cache
            answers = [tokens(out) for out in llm.generate(PROMPTS, greedy(9), use_tqdm=False)]
        follower = tokens(ask(llm, [*LONG[:19], 77, 78]))  # its match ends inside a block: one copy
        if llm is kernels:
            expected = [*answers, follower]
    assert [*answers, follower] == expected
    assert llm.snapshot().counters.copies > 0
    used = {"rotary_reshape_and_cache", "paged_attention_decode", "paged_attention_prefill", "copy_blocks"}
    assert used <= set(calls)


def test_a_kernel_that_is_wrong_is_not_taken(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(query: Any, keys: Any, values: Any, tables: Any, contexts: Any, *rest: Any) -> None:
        REFERENCES["paged_attention_decode"](query, keys, values, tables, (contexts - 1).clamp_min(1), *rest)

    wrong = replace(standin_kernels(), paged_attention_decode=off_by_one)
    with standin(wrong), pytest.raises(ConfigError, match="attention differs from the reference by"):
        make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)


def one_too_many(logits: torch.Tensor, *rest: Any) -> None:
    REFERENCES["top_k_top_p_sample"](logits, *rest)
    rest[-1][3] += 1


def broken(*_: Any) -> None:
    raise RuntimeError("top_k_top_p_sample did not compile for sm_90:\nmany lines")


@pytest.mark.parametrize(
    ("sample", "why"),
    [(one_too_many, r"draws \[.*\], torch draws \["), (broken, "failed: RuntimeError: top_k_top_p_sample did not")],
)
def test_a_wrong_draw_is_not_taken_and_attention_stays(make_llm: Make, sample: Any, why: str) -> None:
    with standin(replace(standin_kernels(), top_k_top_p_sample=sample)):
        llm = make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)
    model = llm.snapshot().model
    assert model.attention_backend == "emulated" and "every layer equals the reference" in model.reason
    assert re.search(f"tokens are drawn by torch: the sampling kernel {why}", model.reason)
    assert llm._engine.sampler._draw_kernel is None
    assert ask(llm, LONG, SamplingParams(temperature=0.8, seed=3, max_tokens=3)).error is None


def test_a_right_draw_is_taken_without_a_word(make_llm: Make) -> None:
    calls: Counter[str] = Counter()
    with standin(standin_kernels(calls)):
        llm = make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)
    assert calls["top_k_top_p_sample"] == 2  # dry, then compared
    assert llm._engine.sampler._draw_kernel is not None and "drawn by torch" not in llm.snapshot().model.reason


@pytest.mark.parametrize("vocab_size", [259, 50257, 128256])
def test_the_check_of_the_draw_knows_a_right_one_at_every_width(vocab_size: int) -> None:
    assert draw_refusal(standin_kernels(), vocab_size, CPU) == ""


def test_a_vocabulary_beyond_the_sampling_kernel_is_said() -> None:
    assert "up to 524288 tokens, the model has 600000" in draw_refusal(standin_kernels(), 600000, CPU)


def test_a_draw_that_does_not_compile_does_not_keep_attention_from_it(make_llm: Make) -> None:
    class Launcher(NoLauncher):
        asked = 0

        def warm_up(self, *_: object) -> None:
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("top_k_top_p_sample did not compile")

    with standin(replace(standin_kernels(), launcher=Launcher())):
        llm = make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)
    assert llm.snapshot().model.attention_backend == "emulated"


def test_a_kernel_that_writes_elsewhere_is_not_taken(make_llm: Make) -> None:
    def shifted(key: Any, value: Any, keys: Any, values: Any, slots: Any) -> None:
        REFERENCES["reshape_and_cache"](key, value, keys, values, slots ^ 1)

    wrong = replace(standin_kernels(), reshape_and_cache=shifted)
    with standin(wrong), pytest.raises(ConfigError, match="writes other K and V"):
        make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)
