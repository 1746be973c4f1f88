"""The attention function that transformers models call: writes K and V to the paged cache, then attends over it.

It reaches a model through transformers' attention interface under the name `yaie`. What a step needs lies in a
`StepSlot` that hangs on the modules of that one model: no global state, and models that drop unknown keyword
arguments on the way to their attention work as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .backends.base import AttentionCall, AttentionStep
from .kv_cache import KVCache
from .opaque import call, is_opaque

NAME = "yaie"
SLOT = "yaie_step_slot"


@dataclass(frozen=True, slots=True)
class AttentionArguments:
    """What a layer asked of its attention: the probe compares it with the model's configuration."""

    sliding_window: int
    softcap: float
    sinks: bool


@dataclass(frozen=True, slots=True)
class Rotation:
    """Query and key [1, heads, tokens, dim] that are not rotated yet; cos and sin [num_tokens, rotary_dim]."""

    query: Tensor
    key: Tensor
    tables: tuple[Tensor, Tensor]


@dataclass(slots=True)
class StepSlot:
    """The step in flight of one model, or None between steps; `calls` counts attention calls per layer.

    A layer may leave its rotary embedding to the write into the cache: between the two it is the slot's `rotation`.
    """

    cache: KVCache | None = None
    step: AttentionStep | None = None
    rotation: Rotation | None = None
    calls: dict[int, int] = field(default_factory=dict)
    seen: dict[int, AttentionArguments] = field(default_factory=dict)


def register() -> None:
    """Make the name known to transformers. No mask function is registered: masks then arrive as None, unbuilt."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)


def attach(model: nn.Module, slot: StepSlot) -> None:
    """Hang `slot` on every module of `model`, so that each attention call finds its step."""
    for module in model.modules():
        object.__setattr__(module, SLOT, slot)


def detach(model: nn.Module) -> None:
    """Take the slot off again."""
    for module in model.modules():
        module.__dict__.pop(SLOT, None)


def leave_rotation(module: nn.Module, rotation: Rotation) -> bool:
    """Leave a rotation to the attention call that follows in `module`; whether there is a step to do it.

    Raises:
        ValueError: another one was left before and no attention followed.
    """
    slot: StepSlot | None = getattr(module, SLOT, None)
    if slot is None or slot.step is None:
        return False
    if slot.rotation is not None:
        raise ValueError("a rotation was left to the attention, and none followed")
    slot.rotation = rotation
    return True


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention of one flat batch.

    query [1, num_heads, num_tokens, head_dim]; key and value [1, kv_heads, num_tokens, head_dim], one layer's.
    Returns ([1, num_tokens, num_heads, value head_dim], None).

    Raises:
        ValueError: the layer asks for what the paged attention does not do; the probe then takes a lower tier.
    """
    if is_opaque(module):
        tensors = [query, key, value, *([] if s_aux is None else [s_aux])]
        scale = query.shape[3] ** -0.5 if scaling is None else float(scaling)
        shape = 1, query.shape[2], query.shape[1], value.shape[3]
        return call(module, tensors, [scale, float(sliding_window or 0), float(softcap or 0.0)], shape), None
    slot: StepSlot | None = getattr(module, SLOT, None)
    if slot is None or slot.step is None or slot.cache is None:
        raise ValueError("attention outside of an engine step")
    if attention_mask is not None or position_bias is not None or is_causal is False or query.shape[0] != 1:
        raise ValueError("a mask of its own, a position bias or attention to later tokens cannot be served flat")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    slot.calls[layer] = slot.calls.get(layer, 0) + 1
    window, cap = int(sliding_window or 0), float(softcap or 0.0)
    if layer not in slot.seen:
        slot.seen[layer] = AttentionArguments(window, cap, s_aux is not None)
    rotation, slot.rotation = slot.rotation, None
    if rotation is not None and (rotation.query is not query or rotation.key is not key):
        raise ValueError("query or key is changed between its rotation and the attention")
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    caches = slot.cache.layer(layer, key.shape[1], key.shape[2], value.shape[2])
    if rotation is None:
        slot.step.write(key, value, *caches)
    else:
        slot.step.rotate_and_write(query, key, value, rotation.tables, caches)
    scale = query.shape[2] ** -0.5 if scaling is None else float(scaling)
    wanted = AttentionCall(scale, window, cap, s_aux)
    return slot.step.attend(query, *caches, wanted).unsqueeze(0), None
