"""The small ops between a model's matrix products, in torch. They round as transformers does in the same dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(input: Tensor, weight: Tensor, eps: float, residual: Tensor | None, out: Tensor) -> None:
    """Root mean square norm over the last dimension of `input` [..., hidden] into `out`; `weight` [hidden].

    With `residual` [..., hidden], `residual += input` comes first and the sum is what is normed. The norm is taken in
    float32 and cast to the input's dtype before it is multiplied by the weight, as in transformers' LlamaRMSNorm (Zhang
    and Sennrich, "Root mean square layer normalization", 2019).
    """
    states = input if residual is None else residual.add_(input)
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    out.copy_(weight * normed.to(states.dtype))


def silu_and_mul(input: Tensor, out: Tensor) -> None:
    """silu(gate) * up into `out` [..., width]; `input` [..., 2 * width] holds gate, then up."""
    gate, up = input.chunk(2, dim=-1)
    torch.mul(F.silu(gate), up, out=out)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`states` [num_tokens, num_heads, head_dim] rotated by cos and sin [num_tokens, rotary_dim].

    Half-split layout (Llama, NeoX): scalars i and i + rotary_dim / 2 are a pair; what lies beyond rotary_dim stays. The
    arithmetic is in the wider dtype of states and cos, one rounding an operation (Su et al., "RoFormer", 2021).
    """
    rotary_dim = cos.shape[-1]
    part = states[..., :rotary_dim]
    first, second = part.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    rotated = part * cos.unsqueeze(1) + turned * sin.unsqueeze(1)
    return torch.cat((rotated.to(states.dtype), states[..., rotary_dim:]), dim=-1)


def rotary_embedding(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """Rotate query and key [num_tokens, heads, head_dim] in place; row `positions[i]` of cos and sin is for token i.

    cos and sin are [num_positions, rotary_dim], positions int64 [num_tokens].
    """
    cos, sin = cos[positions], sin[positions]
    for states in (query, key):
        states.copy_(rotate(states, cos, sin))
