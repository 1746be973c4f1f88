"""Norms on a CPU: swapped where they give what the module gives, and left alone everywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.architectures.zoo import BY_NAME
from tests.loading.folders import sound_folder
from yaie_engine import LLM, EngineConfig, fused_norms, loader
from yaie_engine.fused_norms import fuse_norms

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "deepseek-v3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_several_forms_are_swapped_and_taken_back(name: str, dtype: torch.dtype) -> None:
    model = BY_NAME[name].build().to(dtype)
    norms = [module for module in model.modules() if "RMSNorm" in type(module).__name__]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.3, 1.7)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.inference_mode():
        plain = model(input_ids=ids, use_cache=False).logits
        fused = fuse_norms(model)
        assert fused.swapped["rms_norm"] == len(norms) > 0, fused
        ours = model(input_ids=ids, use_cache=False).logits
        error = (ours - plain).float().std() / plain.float().std()
        assert error < {torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
        fused.restore()
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, plain)


def test_the_input_of_a_norm_is_not_written() -> None:
    model = BY_NAME["llama"].build()
    fuse_norms(model)
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            hidden = torch.randn(1, 3, model.config.hidden_size).to(dtype)
            before = hidden.clone()
            model.to(dtype).model.norm(hidden)
            assert torch.equal(hidden, before)


def test_a_norm_with_a_listener_and_one_of_another_form_stay() -> None:
    model = BY_NAME["llama"].build()
    layer = model.model.layers[0]
    layer.input_layernorm.register_forward_hook(lambda *_: None)

    class OddRMSNorm(nn.Module):
        def __init__(self, like: Any) -> None:
            super().__init__()
            self.weight, self.variance_epsilon = like.weight, like.variance_epsilon

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden * torch.rsqrt(hidden.abs().mean(-1, keepdim=True) + self.variance_epsilon) * self.weight

    layer.post_attention_layernorm = OddRMSNorm(layer.post_attention_layernorm)
    refused = {name: reason for name, _, reason in fuse_norms(model).refused}
    assert refused["model.layers.0.input_layernorm"] == "it has hooks"
    assert "is off by" in refused["model.layers.0.post_attention_layernorm"]


def test_a_folder_says_what_was_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_engine.backends.choose.WORTH_KERNELS", 0)
    folder = str(sound_folder(tmp_path / "model"))
    with LLM(folder, dtype="float32", num_blocks=16, attention_backend="reference") as llm:
        assert "fused: rms_norm" in llm.snapshot().model.reason
    monkeypatch.setattr(fused_norms, "differs", lambda *_: "")  # a wrong form passes: the whole model does not
    monkeypatch.setattr(fused_norms, "SCALES", (fused_norms._one_plus,))
    loaded = loader.load_model(EngineConfig(model=folder, dtype="float32", attention_backend="reference"))
    assert loaded.fused is not None and not loaded.fused.swapped
    assert "does not agree" in str(loaded.fused)
