"""Models in the shapes of real ones: their rotary tables, their sizes, and the bytes that a decode reads."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu.models import LLAMA_8B, QWEN3_600M, SMALL, random_model, weight_bytes, word_tokenizer
from benchmarks.gpu.workload import LONGEST, SHORTEST, asks

CPU = torch.device("cpu")
NARROW = {"num_hidden_layers": 1, "vocab_size": 512, "intermediate_size": 256}


def parameters(kind: str, shape: dict[str, object]) -> int:
    """Weights of the true shape, without making any."""
    model = random_model(kind, shape, torch.bfloat16, torch.device("meta"))
    return sum(weight.numel() for weight in model.parameters())


def test_the_shapes_are_those_of_the_real_models() -> None:
    assert parameters("llama", LLAMA_8B) == 8_030_261_248
    assert parameters("qwen3", QWEN3_600M) == 596_049_920


def test_a_decode_reads_all_weights_but_a_separate_embedding() -> None:
    llama = random_model("llama", LLAMA_8B, torch.bfloat16, torch.device("meta"))
    assert weight_bytes(llama) == 2 * (8_030_261_248 - 128_256 * 4096)
    qwen = random_model("qwen3", QWEN3_600M, torch.bfloat16, torch.device("meta"))
    assert weight_bytes(qwen) == 2 * 596_049_920


@pytest.mark.parametrize(("kind", "shape"), [("llama", LLAMA_8B), ("qwen3", QWEN3_600M)])
def test_weights_have_the_dtype_and_rotary_frequencies_do_not(kind: str, shape: dict[str, object]) -> None:
    model = random_model(kind, {**shape, **NARROW}, torch.bfloat16, CPU)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    frequencies = model.model.rotary_emb.inv_freq
    assert frequencies.dtype == torch.float32 and frequencies.shape == (64,) and frequencies[0] == 1
    if kind == "llama":
        plain = 500_000.0 ** (-torch.arange(0, 128, 2) / 128)
        assert frequencies[-1] == pytest.approx(float(plain[-1]) / 8, rel=1e-3)  # the longest waves are stretched


def test_the_same_weights_every_time_and_a_word_for_every_id() -> None:
    first, second = (random_model("llama", SMALL, torch.float32, CPU) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert word_tokenizer(300).decode([299]) == "w299"


def test_the_workload_is_that_of_nano_vllm() -> None:
    requests = asks(256, SHORTEST, LONGEST, 10_000)
    assert requests == asks(256, SHORTEST, LONGEST, 10_000)
    lengths = [len(each.prompt) for each in requests] + [each.tokens for each in requests]
    assert min(lengths) >= 100 and max(lengths) <= 1024 and sum(each.tokens for each in requests) > 120_000
