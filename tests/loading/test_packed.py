"""Packed linear layers: same answers, and the plain layers wherever anything speaks against them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.architectures.peers import greedy, word_tokenizer
from tests.architectures.zoo import BY_NAME
from tests.loading.folders import sound_folder
from yaie_engine import LLM, SamplingParams, loader
from yaie_engine.config import EngineConfig
from yaie_engine.errors import AnomalyError
from yaie_engine.models import packed
from yaie_engine.models.joined import JoinedLinear, PartLinear
from yaie_engine.models.packed import PackedLinear, pack_linears
from yaie_engine.trace import Tracer

NAN = float("nan")
torch.set_num_threads(1)
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not packed._supported(torch.float32), reason="this torch has no oneDNN"),
]


@pytest.fixture(autouse=True)
def _small_models_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_engine.backends.choose.WORTH_KERNELS", 0)
    monkeypatch.setattr(packed, "SMALLEST", 0)


def count(model: nn.Module) -> int:
    """Layers that were replaced: a joined one is the product of several."""
    joint = {id(module.product) for module in model.modules() if isinstance(module, JoinedLinear)}
    return sum(
        isinstance(module, PartLinear) or (isinstance(module, PackedLinear) and id(module) not in joint)
        for module in model.modules()
    )


def test_a_folder_is_served_packed_with_equal_tokens(tmp_path: Path) -> None:
    prompt = [5, 9, 30, 44, 7, 60, 81, 13, 22]
    expected = greedy(BY_NAME["llama"].build(), prompt, 12).token_ids
    with LLM(str(sound_folder(tmp_path / "model")), dtype="float32", num_blocks=32) as llm:
        assert "linear layers packed for this CPU" in llm.snapshot().model.reason
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        assert list(llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids) == expected


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt-neox", "lfm2", "deepseek-v3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packing_and_undoing(name: str, dtype: torch.dtype) -> None:
    if not packed._supported(dtype):
        pytest.skip("no bfloat16 in hardware")
    model = BY_NAME[name].build().to(dtype)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.inference_mode():
        before = model(input_ids=ids, use_cache=False).logits
        packing = pack_linears(model)
        assert len(packing) == count(model) > 0
        error = (model(input_ids=ids, use_cache=False).logits - before).float().std() / before.float().std()
        assert error < {torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
        packing.undo()
        assert count(model) == 0
        torch.testing.assert_close(model(input_ids=ids, use_cache=False).logits, before, rtol=0, atol=0)


def test_plain_weights_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    references: list[weakref.ref[Any]] = []
    read = loader.read_model

    def noting(*args: Any) -> Any:
        model = read(*args)
        references.append(weakref.ref(model.model.layers[0].mlp.up_proj.weight))
        return model

    monkeypatch.setattr(loader, "read_model", noting)
    loaded = loader.load_model(EngineConfig(model=str(sound_folder(tmp_path / "model")), dtype="float32"))
    gc.collect()
    assert count(loaded.model) > 0
    assert references[0]() is None


def test_a_layer_that_does_not_equal_the_plain_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = PackedLinear.forward
    monkeypatch.setattr(PackedLinear, "forward", lambda self, rows: plain(self, rows) * 1.01)
    model = BY_NAME["llama"].build()
    assert len(pack_linears(model)) == 0
    assert count(model) == 0


def test_a_model_that_reads_its_weights_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = loader.read_model

    def peeking(*args: Any) -> Any:
        model = read(*args)
        model.register_forward_pre_hook(lambda module, _: module.lm_head.weight.shape and None)
        return model

    monkeypatch.setattr(loader, "read_model", peeking)
    loaded = loader.load_model(EngineConfig(model=str(sound_folder(tmp_path / "model")), dtype="float32"))
    assert count(loaded.model) == 0
    assert "packed" not in loaded.tier_reason


def test_a_model_object_is_never_packed() -> None:
    loaded = loader.load_model(EngineConfig(model="x"), BY_NAME["llama"].build(), word_tokenizer())
    assert count(loaded.model) == 0


def test_query_key_and_value_are_one_product_and_nothing_is_kept() -> None:
    model = BY_NAME["llama"].build()
    plain = [module for module in model.modules() if type(module) is nn.Linear]
    pack_linears(model)
    products = [module for module in model.modules() if isinstance(module, PackedLinear)]
    layers = len(model.model.layers)
    assert len(plain) == 7 * layers + 1
    assert len(products) == 4 * layers + 1
    calls: list[int] = []
    for product in products:
        product.register_forward_hook(lambda *_: calls.append(1))
    with torch.inference_mode():
        model(input_ids=torch.tensor([[5, 6, 7]]), use_cache=False)
    assert len(calls) == len(products)
    joints = [module for module in model.modules() if isinstance(module, JoinedLinear)]
    assert all(joint._made is None for joint in joints)


def test_who_looks_at_a_joined_product_sees_each_layer_by_its_own_name(tmp_path: Path) -> None:
    with LLM(str(sound_folder(tmp_path / "model")), dtype="float32", num_blocks=32) as llm:
        llm.detect_anomaly()
        llm.trace(Tracer(num_steps=1, modules=True))
        model: Any = llm._engine.runner._weights.loaded.model  # type: ignore[union-attr]
        joint = next(module for module in model.modules() if isinstance(module, JoinedLinear))
        product = joint.product
        handle = product.register_forward_hook(
            lambda _, rows, out: out.index_fill(-1, torch.tensor(joint.sizes[0]), NAN)
        )
        error = llm.submit([5, 9, 30], SamplingParams(max_tokens=1)).result(60).error
        handle.remove()
        assert isinstance(error, AnomalyError) and error.module == "model.layers.0.self_attn.k_proj"
        assert llm.tracer is not None
        bad = [line.module for line in llm.tracer.trace.lines if line.num_bad]
        assert bad[0] == "model.layers.0.self_attn.k_proj" and not any("joined" in name for name in bad)


@pytest.mark.parametrize("bias", [False, True])
def test_a_part_called_with_other_rows_is_right_in_any_order(bias: bool) -> None:
    parent = nn.Module()
    for name, size in (("q_proj", 48), ("k_proj", 16), ("v_proj", 16)):
        parent.add_module(name, nn.Linear(32, size, bias))
    plain = dict(parent.named_children())
    pack_linears(parent)
    rows = [torch.randn(3, 32), torch.randn(5, 32)]
    with torch.inference_mode():
        for name, number in [("v_proj", 0), ("q_proj", 1), ("k_proj", 0), ("k_proj", 1), ("q_proj", 1), ("v_proj", 1)]:
            found = parent.get_submodule(name)(rows[number])
            torch.testing.assert_close(found, plain[name](rows[number]), rtol=1e-4, atol=1e-5)


def test_layers_with_a_listener_or_other_widths_stay_apart() -> None:
    model = BY_NAME["llama"].build()
    attention = model.model.layers[0].self_attn
    attention.k_proj.register_forward_hook(lambda *_: None)
    pack_linears(model)
    assert type(attention.k_proj) is nn.Linear
    assert isinstance(attention.q_proj, PackedLinear) and isinstance(attention.v_proj, PackedLinear)
    assert isinstance(model.model.layers[1].self_attn.k_proj, PartLinear)


def test_callers_that_take_turns_never_get_parts_of_each_other() -> None:
    """A second caller comes in just after a first has its product, and takes its own first part."""
    plain = nn.Linear(4, 6, bias=False)
    one, two = torch.ones(1, 4), torch.full((1, 4), 2.0)
    whole = JoinedLinear(plain, [2, 4])
    first, _ = whole.part(0, one), whole.part(0, two)
    assert torch.equal(torch.cat([first, whole.part(1, one)], -1), plain(one))
    assert torch.equal(whole.part(1, two), plain(two)[:, 2:])
