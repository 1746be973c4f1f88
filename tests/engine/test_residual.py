"""The residual stream: which additions norms make, that sums stay what they are, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.engine.models import random_llama, tokenizer
from tests.engine.standin import REFERENCES, standin, standin_kernels
from tests.engine.test_fused import SIZES, llama, logits
from yaie_engine import LLM
from yaie_engine.fused import fuse
from yaie_engine.residual import ResidualStream, streaming

MODELS: dict[str, tuple[Callable[[], Any], int]] = {
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)), 3),
    "qwen3": (lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)), 3),
    "mistral": (lambda: MistralForCausalLM(MistralConfig(**SIZES)), 3),
    "scaled sublayers": (lambda: GraniteForCausalLM(GraniteConfig(**SIZES, residual_multiplier=0.3)), 3),
    "experts": (
        lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        ),
        3,
    ),
    "normed before the addition": (lambda: Olmo2ForCausalLM(Olmo2Config(**SIZES, eos_token_id=1)), 0),
    "no rms norm": (lambda: CohereForCausalLM(CohereConfig(**SIZES)), 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_norms_make_the_additions_in_front_of_them_and_logits_are_equal(name: str) -> None:
    """The kernel rounds as addition and norm do, so that with the streams taken off nothing changes at all."""
    build, additions = MODELS[name]
    torch.manual_seed(4)
    model = build().to(torch.bfloat16).eval()
    fused = fuse(model, standin_kernels(), owns_weights=True)
    streamed = logits(model)
    fused.settle()
    assert fused.swapped["residual"] == additions
    fused.use(False, True)
    assert torch.equal(streamed, logits(model))


def test_a_model_whose_layers_do_not_bear_it_says_why() -> None:
    model = llama()
    fused = fuse(model, standin_kernels(), owns_weights=True)
    fused.use(False, True)
    logits(model)
    fused.settle()
    assert not fused.swapped["residual"]
    assert str(fused).endswith("not residual 2 (the model with it does not agree with the plain one)")
    assert not any("forward" in vars(layer) for layer in model.model.layers)


def test_a_sum_that_is_another_is_refused() -> None:
    """A kernel that norms the sum rightly and does not write it."""

    def forgetful(hidden: Any, weight: Any, eps: float, residual: Any, out: Any) -> None:
        REFERENCES["rms_norm"](hidden, weight, eps, None if residual is None else residual.clone(), out)

    model = llama()
    plain = logits(model)
    fused = fuse(model, replace(standin_kernels(), rms_norm=forgetful), owns_weights=True)
    assert ("model.norm", "residual", "the kernel's sum is another") in fused.refused
    ours = logits(model)
    assert not fused.added and (ours - plain).float().square().mean().sqrt() < 0.02 * plain.float().std()


def test_an_engine_serves_a_layer_that_reads_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at load meets the error, and the model runs without streams."""
    model = random_llama().to(torch.bfloat16)
    kind = type(model.model.layers[1])
    plain = kind.forward

    def late(layer: Any, hidden: Any, *args: Any, **named: Any) -> Any:
        return plain(layer, hidden, *args, **named) + hidden * 0

    monkeypatch.setattr(kind, "forward", late)
    with standin(standin_kernels()):
        llm = LLM(model, tokenizer=tokenizer(), attention_backend="emulated", block_size=16, num_blocks=16)
    with llm:
        reason = llm.snapshot().model.reason
        assert "not residual 3 (the model with it does not agree with the plain one)" in reason
        assert llm.generate([[1, 2, 3]], use_tqdm=False)[0].error is None


# ---- the stream itself


def double(hidden: Tensor) -> Tensor:
    return hidden * 2


def add_and_double(hidden: Tensor, stream: Tensor) -> Tensor:
    return stream.add_(hidden) * 2


def ones(value: float = 1.0) -> Tensor:
    return torch.full((1, 2, 4), float(value))


def test_a_tensor_of_the_caller_is_never_written() -> None:
    given = ones()
    stream = ResidualStream.of(given) + ones(2)
    found, added = stream.normed(double, add_and_double)
    assert torch.equal(found, ones(6)) and not added
    found, added = (stream + ones(3)).normed(double, add_and_double)
    assert torch.equal(found, ones(12)) and added
    assert torch.equal(given, ones())


def test_a_sum_that_somebody_has_is_not_written() -> None:
    stream = ResidualStream.of(ones()) + ones(2)
    kept = stream.tensor()
    _, added = (stream + ones(3)).normed(double, add_and_double)
    assert not added and torch.equal(kept, ones(3))


def test_what_was_left_behind_cannot_be_read() -> None:
    stream = ResidualStream.of(ones()) + ones(2)
    stream.normed(double, add_and_double)
    one, other = stream + ones(3), stream + ones(4)
    one.normed(double, add_and_double)
    for left in (stream, other):
        with pytest.raises(RuntimeError, match="added to in place and are gone"):
            left.tensor()
    assert torch.equal(one.tensor(), ones(6))


def test_torch_sees_tensors_and_additions_from_both_sides_stay_streams() -> None:
    stream = ResidualStream.of(ones())
    for total in (stream + ones(2), ones(2) + stream, torch.add(ones(2), stream)):
        assert isinstance(total, ResidualStream) and torch.equal(total.tensor(), ones(3))
    assert torch.equal(stream + 2, ones(3)) and torch.equal(stream + stream, ones(2))
    assert torch.equal(torch.cat([stream, ones(2)], dim=-1), torch.cat([ones(), ones(2)], dim=-1))
    assert torch.equal(nn.functional.linear(stream, torch.eye(4)), ones())
    assert (stream.shape, stream.dtype, stream.size(-1)) == (ones().shape, torch.float32, 4)
    assert torch.equal(stream.mean(-1), ones().mean(-1)) and torch.equal(stream[0], ones()[0])


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "minus": lambda o: o - 0.5,
    "from": lambda o: 1 - o,
    "times": lambda o: o * 2.0,
    "times a tensor": lambda o: o * ones(3),
    "tensor times": lambda o: ones(3) * o,
    "of itself": lambda o: o * o - o / 2,
    "over": lambda o: 1 / (o / 3),
    "floor": lambda o: o // 2 + 7 // o + o % 2,
    "power": lambda o: o**2 + 2**o,
    "product": lambda o: o @ torch.ones(4, 2),
    "negative": lambda o: -o + abs(-o) + (+o),
    "compared": lambda o: (o > 0) & (o >= 3) & (o < 4) & (o <= 3) & (o == 3) & (o != 2),
    "length": lambda o: len(o),
    "as numbers": lambda o: (float(o[0, 0, 0]), bool(o[0, 0, 0]), int(o[0, 0, 0]), f"{o[0, 0, 0]:.2f}"),
    "iterated": lambda o: torch.stack([row.sum() for row in o]),
    "contains": lambda o: 3.0 in o,
    "numpy": lambda o: torch.as_tensor(o.numpy()),
    "methods": lambda o: o.mul(2).float().mean(-1).detach().cpu(),
    "functions": lambda o: torch.where(o > 1, o, 0) + torch.nn.functional.gelu(o),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_stream_bears_what_a_tensor_bears(name: str) -> None:
    """With an addition pending and without."""
    operation = OPERATIONS[name]
    for stream in (ResidualStream.of(ones()) + ones(2), ResidualStream.of(ones(3))):
        found, expected = operation(stream), operation(ones(3))
        assert not isinstance(found, ResidualStream)
        assert torch.equal(found, expected) if isinstance(expected, Tensor) else found == expected
    assert hash(stream) == hash(stream)


def add_to(o: Any) -> None:
    o += ones(4)


def scale(o: Any) -> None:
    o *= 2
    o -= 1
    o /= 4


def write(o: Any) -> None:
    o[..., 0] = 9


CHANGES: list[Callable[[Any], None]] = [add_to, scale, write, lambda o: o.mul_(3), lambda o: o.add_(ones())]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_place_is_one_of_this_stream_alone(change: Callable[[Any], None]) -> None:
    """Whoever has the same stream sees it; sums that were made before do not, nor does the caller's tensor."""
    given, expected = ones(), ones(3)
    stream = ResidualStream.of(given) + ones(2)
    later = stream + ones(5)
    same = stream
    change(stream)
    change(expected)
    assert torch.equal(same.tensor(), expected) and same is stream
    assert torch.equal(later.tensor(), ones(8)) and torch.equal(given, ones())
    found, _ = (stream + ones()).normed(double, add_and_double)
    assert torch.equal(found, (expected + 1) * 2)


def test_hooks_that_come_after_the_load_compute_with_what_they_get() -> None:
    model, plain, seen = llama(), llama(), list[Tensor]()

    def hook(_module: Any, _args: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        seen.append((states * 2.0 - 1) / 4)
        states *= 0.5

    fuse(model, standin_kernels(), owns_weights=True)
    for one in (model, plain):
        one.model.layers[0].register_forward_hook(hook)
    ours, expected = logits(model), logits(plain)
    assert (ours - expected).float().square().mean().sqrt() < 0.02 * expected.float().std()
    assert (seen[0] - seen[1]).float().abs().max() < 0.02


def test_a_layer_may_be_given_its_states_by_name() -> None:
    class Layer(nn.Module):
        def forward(self, hidden_states: Any, factor: int) -> tuple[type, int]:
            return type(hidden_states), factor

    layer = streaming(Layer())
    assert layer(ones(), 3) == layer(hidden_states=ones(), factor=3) == (ResidualStream, 3)


def test_a_hook_on_a_layer_sees_what_it_was_given() -> None:
    """It is called when the layer has run, and may keep what it got: the sum is not written from then on."""

    class Layer(nn.Module):
        def forward(self, hidden: Any) -> Any:
            first = hidden + torch.ones(1, 2)
            first.normed(lambda x: x, lambda more, total: total.add_(more))
            second = first + torch.ones(1, 2)
            second.normed(lambda x: x, lambda more, total: total.add_(more))
            return second

    layers, seen = [Layer(), Layer()], []
    for layer in layers:
        layer.forward = streaming(layer)  # type: ignore[method-assign]
    states = layers[1](layers[0](torch.zeros(1, 2)))
    assert states.tensor().tolist() == [[4.0, 4.0]]
    layers[1].register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    states = layers[1](layers[0](torch.zeros(1, 2)))
    assert seen[0][0].shape == (1, 2) and seen[0][0].tolist() == [[2.0, 2.0]]
    assert states.tensor().tolist() == seen[0][1].tolist() == [[4.0, 4.0]]
