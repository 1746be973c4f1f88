"""The tier of a name, over a model and a cache."""

from __future__ import annotations

from typing import Any

from yaie_engine.attention import NAME, register
from yaie_engine.kv_cache import KVCache
from yaie_engine.loaded import TierName
from yaie_engine.states.kept import KeptStates

from .flat import FlatTier
from .forward import Tier
from .paged import PagedTier
from .state import StateTier

TIERS: dict[TierName, type[FlatTier] | type[PagedTier] | type[StateTier]] = {
    "flat": FlatTier,
    "paged": PagedTier,
    "state": StateTier,
}


def make_tier(name: TierName, model: Any, cache: KVCache, kept: KeptStates | None = None) -> Tier:
    """A tier over `model`, whose attention implementation is set already. Tier "state" leaves states in `kept`."""
    if name == "flat" and model.config.get_text_config()._attn_implementation != NAME:
        raise ValueError("the flat tier needs a model whose attention is ours")
    return StateTier(model, cache, kept) if name == "state" else TIERS[name](model, cache)


def use_attention(model: Any, name: str) -> bool:
    """Switch `model` to an attention implementation; False where it does not take it."""
    register()
    if not model._can_set_attn_implementation():
        return bool(model.config.get_text_config()._attn_implementation == name)
    model.set_attn_implementation(name)
    return bool(model.config.get_text_config()._attn_implementation == name)
