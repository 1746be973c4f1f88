"""What a record's KV depends on besides its tokens is in its identity: change one thing, and the record is a miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.engine.models import random_llama
from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.models.fingerprint import fingerprint
from yaie_engine.store.kv import identity_of

LAYERS = tuple(LayerLayout(i, 2, 16, 16) for i in range(3))


def of(model: Any, dtype: torch.dtype = torch.float32, layers: tuple[LayerLayout, ...] = LAYERS) -> str:
    return identity_of(model, fingerprint(model), dtype, KVLayout(layers))


def configured(**values: Any) -> Callable[[Any], None]:
    return lambda model: model.config.update(values)


def weight(model: Any) -> None:
    with torch.no_grad():
        model.get_submodule("model.layers.1.self_attn.k_proj").weight.mul_(1.01)


def rope(model: Any) -> None:
    """As models do that choose their table by the longest context."""
    next(value for name, value in model.named_buffers() if name.endswith("inv_freq")).mul_(0.5)


def scaling(model: Any) -> None:
    next(part for part in model.modules() if hasattr(part, "attention_scaling")).attention_scaling = 1.25


CHANGES: dict[str, Callable[[Any], None]] = {
    "one weight": weight,
    "the table of RoPE": rope,
    "the scale of RoPE": scaling,
    "RoPE in the configuration": configured(rope_parameters={"rope_type": "default", "rope_theta": 7.0}),
    "the window of attention": configured(sliding_window=5),
    "the epsilon of the norms": configured(rms_norm_eps=1e-3),
    "the number of heads": configured(num_attention_heads=8),
    "the activation": configured(hidden_act="gelu"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_is_another_identity(change: str) -> None:
    model = random_llama()
    before = of(model)
    CHANGES[change](model)
    assert of(model) != before


def test_another_type_or_layout_is_another_identity() -> None:
    model = random_llama()
    other = [
        of(model),
        of(model, torch.bfloat16),
        of(model, layers=LAYERS[:2]),
        of(model, layers=(replace(LAYERS[0], kv_heads=4), *LAYERS[1:])),
        of(model, layers=(replace(LAYERS[0], value_dim=8), *LAYERS[1:])),
        of(model, layers=(replace(LAYERS[0], layer=7), *LAYERS[1:])),
    ]
    assert len(set(other)) == len(other)


def test_the_same_model_elsewhere_is_the_same() -> None:
    one, two = random_llama(), random_llama()
    two.config.update({"_name_or_path": "/somewhere/else", "transformers_version": "0"})
    assert of(one) == of(two)
