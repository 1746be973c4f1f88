"""The network of `tiny` in training: Llama arithmetic in a few lines, weights named as in a checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the network."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 512
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    num_positions: int = 4096
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


class Norm(nn.Module):
    """Root-mean-square norm with a learned gain."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden_size))
        self.eps = shape.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` scaled to unit size, then by the gain."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the halves of each head by the angles of its position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """Grouped-query causal attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        wide, narrow = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, wide, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(wide, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Mix each position with those before it."""
        rows, length, _ = x.shape  # [rows, length, hidden]
        dim, groups = self.shape.head_dim, self.shape.num_heads // self.shape.num_kv_heads
        query = self.q_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        key = self.k_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        value = self.v_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))
        return out


class Mlp(nn.Module):
    """The gated feed-forward part of a layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform every position by itself."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Attention and feed-forward, each with its norm and its shortcut."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Pass the stream through the layer."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Network(nn.Module):
    """Embedding, layers, norm; the output head is the embedding itself."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = Norm(shape)
        pair = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        angle = torch.outer(torch.arange(shape.num_positions, dtype=torch.float32), shape.rope_theta**-pair)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.reset()

    def reset(self) -> None:
        """Draw fresh weights; the layers start as no change to the stream."""
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                continue
            nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1]) if "embed" not in name else 0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)

    def stream(self, ids: Tensor) -> Tensor:
        """Return the normed last states of `ids` [rows, length]."""
        x = self.embed_tokens(ids)
        if torch.is_autocast_enabled("cpu"):
            x = x.bfloat16()
        cos, sin = self.cos[: ids.shape[1]].to(x.dtype), self.sin[: ids.shape[1]].to(x.dtype)  # type: ignore[index]
        for layer in self.layers:
            x = layer(x, cos, sin)
        out: Tensor = self.norm(x)
        return out

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the positions whose target counts."""
        states = self.stream(ids).flatten(0, 1)
        kept = (targets.flatten() != IGNORED).nonzero().squeeze(1)
        logits = F.linear(states[kept], self.embed_tokens.weight)
        return F.cross_entropy(logits.float(), targets.flatten()[kept])
