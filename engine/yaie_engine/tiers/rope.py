"""Rotary embeddings that depend on the longest position of the batch are fixed once, for the engine's longest sequence.

Left alone, "dynamic" and "longrope" choose their frequencies from the largest position they see: in a batch of several
requests a long neighbour would change the answer of a short one, and keys already cached would no longer fit.
"""

from __future__ import annotations

from typing import Any


def freeze_rope(model: Any, max_model_len: int) -> list[str]:
    """Fix the frequencies of `model`'s rotary modules, replacing their buffers. Returns the kinds that were fixed."""
    frozen: list[str] = []
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and _moves(kinds):
            _freeze(module, kinds, None, max_model_len)
            module.rope_type = "default"
            frozen.append(kinds)
        elif isinstance(kinds, dict):
            moving = {layer_type: kind for layer_type, kind in kinds.items() if _moves(kind)}
            for layer_type, kind in moving.items():
                _freeze(module, kind, layer_type, max_model_len)
                frozen.append(kind)
            module.rope_type = {**kinds, **dict.fromkeys(moving, "default")}
    return sorted(set(frozen))


def _moves(kind: object) -> bool:
    return isinstance(kind, str) and ("dynamic" in kind or kind == "longrope")


def _freeze(module: Any, kind: str, layer_type: str | None, max_model_len: int) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    prefix = "" if layer_type is None else f"{layer_type}_"
    old = getattr(module, f"{prefix}inv_freq")
    length = max(max_model_len, int(getattr(module, "original_max_seq_len", 0))) if "dynamic" in kind else max_model_len
    more = {} if layer_type is None else {"layer_type": layer_type}
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](module.config, old.device, seq_len=length, **more)
    setattr(module, f"{prefix}inv_freq", frequencies.to(old.device, old.dtype))
    setattr(module, f"{prefix}attention_scaling", scaling)
