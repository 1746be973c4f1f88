"""Parts of a model that somebody replaces after the load: recorded decodes and joined weights never answer for them.

The truth is a plain model of transformers to which the same was done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.conftest import Make
from tests.engine.fakes import greedy, tokens
from tests.engine.test_cpu_graphs import graphs_of
from yaie_cuda.cpu import build
from yaie_engine import LLM, compiled, parts, runner

kernels = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
PROMPTS = [list(range(3, 3 + length)) for length in (21, 5)]
COUNT = 8
Change = Callable[[Any], object]


def drawn(like: torch.Tensor, seed: int = 5) -> torch.Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def set_parameter(model: Any) -> None:
    norm = model.model.norm
    norm.weight = nn.Parameter(drawn(norm.weight), requires_grad=False)


def set_embedding(model: Any) -> None:
    rows = model.model.embed_tokens
    rows.weight = nn.Parameter(drawn(rows.weight), requires_grad=False)


def set_gate(model: Any) -> None:
    """Where gate and up run as one kernel their weights were joined."""
    for layer in model.model.layers:
        layer.mlp.gate_proj.weight = nn.Parameter(drawn(layer.mlp.gate_proj.weight), requires_grad=False)


def write_table(model: Any) -> None:
    """As accelerate does: torch tells nobody."""
    key = model.model.layers[0].self_attn.k_proj
    key._parameters["weight"] = nn.Parameter(drawn(key.weight), requires_grad=False)


def assign_state(model: Any) -> None:
    norms = {name: drawn(value) for name, value in model.state_dict().items() if "layernorm" in name}
    model.load_state_dict(norms, strict=False, assign=True)


def set_buffer(model: Any) -> None:
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq * 0.25


def set_submodule(model: Any) -> None:
    old = model.model.layers[1].self_attn.o_proj
    new = nn.Linear(old.in_features, old.out_features, bias=False)
    new.weight = nn.Parameter(drawn(new.weight), requires_grad=False)
    model.model.layers[1].self_attn.o_proj = new


def set_layer(model: Any) -> None:
    """One with an attention of its own, which has never seen a step."""
    new = type(model.model.layers[0])(model.config, layer_idx=1)
    for number, value in enumerate(new.parameters()):
        value.data = drawn(value, number)
    model.model.layers[1] = new.eval().requires_grad_(False)


def set_up(model: Any) -> None:
    model.model.layers[2].mlp.up_proj = nn.Linear(*model.model.layers[2].mlp.up_proj.weight.shape[::-1], bias=False)
    model.model.layers[2].mlp.up_proj.weight.data = drawn(model.model.layers[2].mlp.up_proj.weight)


def write_in_place(model: Any) -> None:
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate_proj.weight.copy_(drawn(layer.mlp.gate_proj.weight))
        model.model.norm.weight.mul_(-1.5)


def set_data(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.up_proj.weight.data = drawn(layer.mlp.up_proj.weight)
    model.model.layers[0].input_layernorm.weight.data = drawn(model.model.norm.weight)


def patch_forward(model: Any) -> None:
    """As a notebook does that tries something out."""
    mlp = model.model.layers[1].mlp
    plain = type(mlp).forward
    mlp.forward = lambda states: plain(mlp, states) * -2.0


CHANGES = [
    set_parameter, set_embedding, set_gate, write_table, assign_state, set_buffer, set_submodule, set_layer, set_up,
    write_in_place, set_data, patch_forward,
]  # fmt: skip


def model_of(llm: LLM) -> Any:
    return llm._engine.runner._tier._call.model  # type: ignore[attr-defined]


def plain(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def expected(model: Any) -> list[tuple[int, ...]]:
    answers = []
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(COUNT):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        answers.append(tuple(ids[len(prompt) :]))
    return answers


def found(llm: LLM, count: int = len(PROMPTS)) -> list[tuple[int, ...]]:
    outputs = llm.generate(PROMPTS[:count], [greedy(COUNT)] * count, use_tqdm=False)
    llm.check()
    return [tuple(tokens(output)) for output in outputs]


def engine(make_llm: Make, **settings: Any) -> LLM:
    return make_llm(**{"attention_backend": "cpu", "enable_prefix_caching": False, **settings})


@kernels
@pytest.mark.parametrize(
    ("change", "eager"),
    [*((change, False) for change in CHANGES), *((change, True) for change in (set_gate, set_layer, set_up, set_data))],
)
def test_the_next_answer_is_that_of_the_changed_model(
    folder: Path, make_llm: Make, change: Change, eager: bool
) -> None:
    llm, truth = engine(make_llm, enforce_eager=eager), plain(folder)
    before = expected(truth)
    assert found(llm) == before
    for model in (model_of(llm), truth):
        change(model)
    after = expected(truth)
    assert after != before and found(llm) == after
    graphs = graphs_of(llm)
    if not eager:
        assert graphs is not None and graphs.captured and not graphs.failure, "it is recorded anew"
    for model in (model_of(llm), truth):
        write_in_place(model)
    assert found(llm) == expected(truth) != after


def test_what_comes_into_a_table_that_was_empty_is_seen() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for add in (
        lambda: model[1].register_buffer("first", torch.ones(1)),
        lambda: model[1].add_module("child", nn.ReLU()),
        lambda: setattr(model[1], "weight", nn.Parameter(torch.ones(1))),
    ):
        now = parts.Parts(model)
        assert not now.changed
        add()
        assert now.changed and now.replaced


@kernels
@pytest.mark.parametrize("change", [set_parameter, write_table, set_layer, set_data])
def test_a_change_amid_an_answer_counts_soon(
    folder: Path, make_llm: Make, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """After as many steps as it takes to look through all: with one share, from the next step on."""
    monkeypatch.setattr(parts, "SHARES", 1)
    llm, truth, steps = engine(make_llm), plain(folder), list[int]()
    run = llm._engine.runner.run

    def counting(*args: Any) -> Any:
        steps.append(1)
        if len(steps) == 6:
            change(model_of(llm))
        return run(*args)

    llm._engine.runner.run = counting  # type: ignore[method-assign]
    before = found(llm, 1)[0]
    assert len(steps) == COUNT + 2 and before != expected(truth)[0]


def test_a_glance_sees_every_part_in_its_turn() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40)))
    changes: list[Change] = [
        lambda model: setattr(model[17], "weight", nn.Parameter(torch.zeros(2, 2))),
        lambda model: setattr(model[39].bias, "data", torch.zeros(2)),
        lambda model: model.append(nn.ReLU()),
        lambda model: model[3]._parameters.pop("bias"),
    ]
    for change in changes:
        seen = parts.Parts(model)
        assert not seen.changed and not any(seen.glance() for _ in range(100))
        model[5].weight.data.add_(1)
        assert not seen.changed
        change(model)
        assert seen.changed and any(seen.glance() for _ in range(parts.SHARES))


@kernels
def test_hooks_of_a_new_part_see_every_step(make_llm: Make) -> None:
    llm = engine(make_llm)
    set_submodule(model_of(llm))
    before, seen = found(llm), list[int]()
    hook = model_of(llm).model.layers[1].self_attn.o_proj.register_forward_hook(lambda *_: seen.append(1))
    assert found(llm) == before and len(seen) >= COUNT
    hook.remove()


def test_a_compiled_forward_is_used_no_more(folder: Path, make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "inductor", lambda graph, inputs: graph.forward)
    llm, truth = make_llm(enable_torch_compile=True, enable_prefix_caching=False), plain(folder)
    for model in (model_of(llm), truth):
        set_layer(model)
    assert found(llm) == expected(truth)
    assert "without torch.compile: a part of the model was replaced" in llm.snapshot().model.reason


@kernels
def test_a_model_that_changes_itself_is_left_unrecorded(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_RENEWALS", 3)
    llm = engine(make_llm)
    before = found(llm)
    rotary = model_of(llm).model.rotary_emb
    rotary.register_forward_pre_hook(lambda module, args: setattr(module, "inv_freq", module.inv_freq.clone()))
    for _ in range(runner.MOST_RENEWALS + 3):
        assert found(llm) == before
    assert runner.CHANGING in llm.snapshot().model.reason
