"""Weights as int8: what they stand for, what it costs, and who may not have them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.architectures.zoo import BY_NAME
from tests.engine.conftest import Make
from yaie_cuda.cpu.build import unbuildable_reason
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_engine import LLM, ConfigError, EngineConfig, SamplingParams
from yaie_engine.loader import PROBED, _quantize, load_model
from yaie_engine.models import quantized
from yaie_engine.models.joined import joined
from yaie_engine.models.packed import PackedLinear
from yaie_engine.models.quantized import Int8Weight, int8_weight, quantize_linears

pytestmark = pytest.mark.skipif(bool(unbuildable_reason()), reason=unbuildable_reason())
DTYPES = (torch.float32, torch.bfloat16)


def test_whole_numbers_are_the_nearest() -> None:
    weight = torch.randn(40, 30) * torch.logspace(-6, 4, 40).unsqueeze(1)
    weight[3] = 0
    found = Int8Weight.of(weight)
    off = (found.plain(torch.float32) - weight).abs()
    assert bool((off <= found.scales.unsqueeze(1) * 0.5001).all())
    assert found.values.abs().max() == 127 and bool((found.plain(torch.float32)[3] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_the_whole_numbers(dtype: torch.dtype, bias: bool) -> None:
    """In float64 from the same whole numbers; joined layers keep the scale of every row."""
    torch.manual_seed(1)
    layers = [nn.Linear(160, 128, bias).to(dtype), nn.Linear(160, 104, bias).to(dtype)]
    with torch.inference_mode():
        assert quantize_linears(nn.Sequential(*layers)) == 2
        whole = joined(layers)
        numbers = int8_weight(whole)
        assert numbers is not None
        packed = PackedLinear(whole, CpuKernels())
        assert packed.packed.dtype == torch.int8 and packed.nbytes < whole.weight.nbytes
        for rows in (0, 1, 4, 6, 100):
            states = torch.randn(rows, 160).to(dtype)
            exact = states.double() @ numbers.plain(torch.float64).T
            exact += 0 if whole.bias is None else whole.bias.double()
            torch.testing.assert_close(
                packed(states).double(), exact, rtol=2**-7 if dtype != torch.float32 else 1e-4, atol=1e-4
            )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_engine_says_what_it_costs_and_answers_nearly_the_same(dtype: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=16, logprobs=1)
    prompt = "Once upon a time there was a small engine that lived in a notebook."
    found: list[Any] = []
    for quantization in (None, "int8"):
        with LLM("tiny", dtype=dtype, attention_backend="cpu", quantization=quantization) as llm:
            reason, info = llm.snapshot().model.reason, llm.snapshot().model
            assert ("linear layers as int8, which moves the logits by" in reason) == (quantization is not None)
            assert "silu 6" in reason or quantization is None
            found.append((info.fingerprint, llm.generate(prompt, params, use_tqdm=False)[0].outputs[0]))
            llm.check()
    (one, plain), (other, ours) = found
    assert one != other, "KV of one must never serve the other"
    first = [next(iter(row.values())).logprob for row in (plain.logprobs[0], ours.logprobs[0])]
    assert abs(first[0] - first[1]) < 0.3


def test_a_load_tells_how_far_weights_and_kernels_are() -> None:
    """What takes seconds to minutes of a large model has a share that grows; the rest has its name."""
    heard: list[tuple[str, float | None]] = []
    load_model(EngineConfig(quantization="int8"), progress=lambda *now: heard.append(now))
    stages = list(dict.fromkeys(what for what, _ in heard))
    assert [each for each in stages if each.endswith(("weights", "kernels"))] == [
        *("reading weights", "quantizing weights", "building CPU kernels", "checking kernels"),
        *("packing weights", "checking packed weights"),
    ]
    for stage in ("quantizing weights", "packing weights"):
        shares = [share for what, share in heard if what == stage and share is not None]
        assert len(shares) > 20 and shares == sorted(shares) and shares[0] == 0 and 0.9 < shares[-1] < 1


@pytest.mark.parametrize("backend", ["reference", "emulated", "cuda"])
def test_other_backends_are_refused(backend: str, make_llm: Make) -> None:
    with pytest.raises(ConfigError, match=rf"quantization='int8' needs the CPU kernels.*'{backend}'"):
        make_llm(quantization="int8", attention_backend=backend)


def test_without_kernels_it_is_refused_with_the_reason(make_llm: Make) -> None:
    with pytest.raises(ConfigError, match=r"quantization='int8' needs the CPU kernels: .*float16"):
        make_llm(quantization="int8", dtype="float16")


def test_the_cost_is_measured_on_tokens_of_the_whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ids of many vocabularies are bytes or reserved: on zeros alone nothing would ever move."""
    monkeypatch.setattr(quantized, "SMALLEST", 0)
    model = BY_NAME["llama"].build()
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        embedding[:PROBED] = 0
        assert len(embedding) > PROBED
    reason = _quantize(model, EngineConfig(quantization="int8"), lambda *_: None)
    assert "moves the logits by" in reason and "0.0e+00" not in reason


def test_a_model_object_keeps_its_weights() -> None:
    model = BY_NAME["llama"].build()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(ConfigError, match="name a folder"):
        load_model(EngineConfig(model="x", quantization="int8"), model)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
