"""Modules of a transformers model whose arithmetic our kernels do in one launch instead of many.

A module is swapped only after a check on random inputs: the kernel's result must be that of the module's own forward,
bit for bit or within one rounding of the model's dtype (root mean square of the difference at most half an ulp of the
result's size, no value off by more than eight times that). The module's weights and place stay; only its `forward`
is replaced on that one object, and `restore` takes the replacement off again.

Layers whose norms are ours get their hidden states as a `ResidualStream`, so that the addition in front of a norm is
made by the norm. Whether their code bears that only a run of the whole model shows: `keep_residuals` decides after it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .backends.kernels import Kernels
from .fused_check import ROWS, attempt, difference, differs, error_text, module_result
from .residual import ResidualStream, streaming

KINDS = ("rms_norm", "residual", "silu", "rotary")
ROTARY = "apply_rotary_pos_emb"


@dataclass(slots=True)
class FusedModules:
    """What was swapped and what was not: `refused` holds (module name, kind, reason).

    `added` names the norms that were seen to make the addition in front of them.
    """

    swapped: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    added: set[str] = field(default_factory=set)
    _modules: list[nn.Module] = field(default_factory=list)
    _layers: dict[str, nn.Module] = field(default_factory=dict)

    def swap(self, name: str, kind: str, module: nn.Module, forward: Callable[..., Any], reason: str) -> None:
        """Put `forward` on `module` unless there is a reason not to."""
        if reason:
            self.refused.append((name, kind, reason))
            return
        module.forward = forward
        self._modules.append(module)
        self.swapped[kind] += 1

    def stream(self, name: str, layer: nn.Module) -> None:
        """Hand `layer` its hidden states as a stream from now on."""
        layer.forward = streaming(layer.forward)
        self._layers[name] = layer

    def keep_residuals(self, works: bool) -> None:
        """After a run of the model: count the additions that norms made, or take the streams off again."""
        reason = "" if self.added else "no norm follows an addition"
        reason = reason if works else "the model with it does not agree with the plain one"
        if not reason:
            self.swapped["residual"] = len(self.added)
            return
        for name, layer in self._layers.items():
            layer.__dict__.pop("forward", None)
            self.refused.append((name, "residual", reason))
        self._layers.clear()
        self.added.clear()

    def restore(self) -> None:
        """Give every module its own forward back."""
        for module in (*self._modules, *self._layers.values()):
            module.__dict__.pop("forward", None)
        self._modules.clear()
        self._layers.clear()

    def __str__(self) -> str:
        """ "fused: rms_norm 13, silu 6, not rotary 3 (why)": how many of each; of those refused the first reason."""
        counts = Counter(kind for _, kind, _ in self.refused)
        why = {kind: reason for _, kind, reason in reversed(self.refused)}
        parts = [f"{kind} {self.swapped[kind]}" for kind in KINDS if self.swapped[kind]] or ["nothing"]
        parts += [f"not {kind} {counts[kind]} ({why[kind]})" for kind in KINDS if counts[kind]]
        return f"fused: {', '.join(parts)}"


def fuse(model: nn.Module, kernels: Kernels, owns_weights: bool) -> FusedModules:
    """Swap what passes its check. Gate and up weights are joined only when the model's weights are ours alone."""
    fused = FusedModules()
    ranges = Ranges()
    with torch.inference_mode():
        for name, module in model.named_modules():
            if "forward" in module.__dict__:
                continue  # somebody else has replaced it
            if _is_rms_norm(module):
                _fuse_norm(fused, name, module, kernels)
            elif _is_gated_mlp(module):
                _fuse_mlp(fused, name, module, kernels, owns_weights)
            elif _rotates(module):
                _fuse_rotary(fused, name, module, kernels, ranges)
    _stream_layers(fused, model)
    return fused


# ---- RMSNorm


def _is_rms_norm(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    return "RMSNorm" in type(module).__name__ and weight is not None and weight.dim() == 1 and _takes_rows(module)


def _takes_rows(module: nn.Module) -> bool:
    """Whether its forward takes the hidden states and nothing else: a gate, say, the kernels know nothing of."""
    return len(inspect.signature(type(module).forward).parameters) == 2


def _fuse_norm(fused: FusedModules, name: str, module: Any, kernels: Kernels) -> None:
    norm = rms_norm_forward(module, kernels)
    add_and_norm = add_norm_forward(module, kernels)
    reason = differs(module, norm, module.weight.shape[0])
    why_not = reason or _added_differs(module, add_and_norm, module.weight.shape[0])

    def forward(hidden: Tensor | ResidualStream) -> Tensor:
        if not isinstance(hidden, ResidualStream):
            return norm(hidden)
        if why_not or hidden.dtype != module.weight.dtype:
            return norm(hidden.tensor())
        result, added = hidden.normed(norm, add_and_norm)
        if added:
            fused.added.add(name)
        return result

    fused.swap(name, "rms_norm", module, forward, reason)
    if why_not and not reason:
        fused.refused.append((name, "residual", why_not))


def rms_norm_forward(module: Any, kernels: Kernels) -> Callable[[Tensor], Tensor]:
    """The norm in one launch; other dtypes than the weight's go the module's own way."""
    plain, eps = module.forward, _eps(module)

    def forward(hidden: Tensor) -> Tensor:
        if hidden.dtype != module.weight.dtype:
            result: Tensor = plain(hidden)
            return result
        out = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        width = hidden.shape[-1]
        kernels.rms_norm(hidden.reshape(-1, width), module.weight, eps, None, out.view(-1, width))
        return out

    return forward


def add_norm_forward(module: Any, kernels: Kernels) -> Callable[[Tensor, Tensor], Tensor]:
    """The addition to a residual stream and its norm in one launch; the stream, contiguous, is written."""
    eps = _eps(module)

    def forward(hidden: Tensor, stream: Tensor) -> Tensor:
        out = torch.empty(stream.shape, dtype=stream.dtype, device=stream.device)
        width = stream.shape[-1]
        rows = hidden.reshape(-1, width), stream.view(-1, width)
        kernels.rms_norm(rows[0], module.weight, eps, rows[1], out.view(-1, width))
        return out

    return forward


def _eps(module: Any) -> float:
    return next((value for name in ("variance_epsilon", "eps") if (value := getattr(module, name, None))), 0.0)


def _added_differs(module: Any, add_and_norm: Callable[[Tensor, Tensor], Tensor], width: int) -> str:
    """Why the norm cannot make the addition; the sum must be the same to the bit."""
    try:
        _, hidden = module_result(module, width)
        stream = hidden.flip(1) * 3
        total = stream + hidden
        expected: Tensor = module(total)
        found = add_and_norm(hidden, stream)
    except Exception as error:
        return error_text(error)
    return difference(found, expected) if torch.equal(stream, total) else "the kernel's sum is another"


def _stream_layers(fused: FusedModules, model: nn.Module) -> None:
    """Hand the layers of `model` their hidden states as a stream, where a norm of theirs is ours."""
    ours = {id(module) for module in fused._modules}
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            continue
        for number, layer in enumerate(module):
            norms = [child for child in layer.children() if _is_rms_norm(child)]
            if not norms or "forward" in layer.__dict__:
                continue
            if any(id(norm) in ours for norm in norms):
                fused.stream(f"{name}.{number}", layer)
            else:
                fused.refused.append((f"{name}.{number}", "residual", "its norms are the model's own"))


# ---- gated MLP


def _is_gated_mlp(module: nn.Module) -> bool:
    gate, up, down = (module._modules.get(name) for name in ("gate_proj", "up_proj", "down_proj"))
    return gate is not None and up is not None and down is not None and _takes_rows(module)


def _fuse_mlp(fused: FusedModules, name: str, module: Any, kernels: Kernels, owns_weights: bool) -> None:
    reason = _not_joinable(module, owns_weights)
    if reason:
        fused.swap(name, "silu", module, module.forward, reason)
        return
    expected, rows = module_result(module, module.gate_proj.in_features)
    weight, bias = _joined(module.gate_proj, module.up_proj)
    forward = gated_mlp_forward(module, weight, bias, kernels)
    reason = difference(attempt(forward, rows), expected)
    fused.swap(name, "silu", module, forward, reason)
    if not reason:  # the two layers become views, so that the weights are there once
        for linear, part in zip((module.gate_proj, module.up_proj), weight.chunk(2), strict=True):
            linear.weight.data = part


def _not_joinable(module: Any, owns_weights: bool) -> str:
    gate, up = module.gate_proj, module.up_proj
    if type(gate) is not nn.Linear or type(up) is not nn.Linear:
        return f"its gate is a {type(gate).__name__}"
    if gate.weight.shape != up.weight.shape or (gate.bias is None) != (up.bias is None):
        return "gate and up have different shapes"
    if not _is_silu(getattr(module, "act_fn", None)):
        return "its activation is not SiLU"
    if not owns_weights:
        return "its weights belong to the caller, and joining them would copy them"
    return ""


def _is_silu(activation: Any) -> bool:
    if not callable(activation):
        return False
    points = torch.linspace(-4, 4, 33)
    try:
        return torch.allclose(activation(points), F.silu(points), rtol=1e-6, atol=1e-7)
    except Exception:  # it takes something else than a tensor
        return False


def _joined(gate: nn.Linear, up: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight [2 * intermediate, hidden] and bias of both layers as one."""
    biases = [bias.data for linear in (gate, up) if (bias := linear._parameters["bias"]) is not None]
    return torch.cat((gate.weight.data, up.weight.data)), torch.cat(biases) if biases else None


def gated_mlp_forward(module: Any, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Callable[[Tensor], Tensor]:
    """Gate and up in one product, their gating in one launch, then the module's own way down."""
    plain = module.forward

    def forward(hidden: Tensor) -> Tensor:
        if hidden.dtype != weight.dtype:
            result: Tensor = plain(hidden)
            return result
        both = F.linear(hidden, weight, bias)
        out = both.new_empty(*both.shape[:-1], both.shape[-1] // 2)
        kernels.silu_and_mul(both.view(-1, both.shape[-1]), out.view(-1, out.shape[-1]))
        down: Tensor = module.down_proj(out)
        return down

    return forward


# ---- rotary embedding


class Ranges:
    """Token numbers 0, 1, 2 ... on a device. Longer ones are made when needed; none is freed: a graph may hold it."""

    def __init__(self) -> None:
        self._made: list[Tensor] = []

    def upto(self, count: int, device: torch.device) -> Tensor:
        """int64 [count]."""
        fitting = [made for made in self._made if len(made) >= count and made.device == device]
        if not fitting:
            fitting = [torch.arange(1 << max(6, (count - 1).bit_length()), device=device)]
            self._made += fitting
        return fitting[0][:count]


def _rotates(module: nn.Module) -> bool:
    code = getattr(_plain_forward(module), "__code__", None)
    return hasattr(module, "layer_idx") and code is not None and ROTARY in code.co_names


def _plain_forward(module: nn.Module) -> Any:
    return inspect.unwrap(type(module).forward)


def _fuse_rotary(fused: FusedModules, name: str, module: nn.Module, kernels: Kernels, ranges: Ranges) -> None:
    """The module's own forward with another function under the name that it calls: nothing is patched for others."""
    plain = _plain_forward(module)
    function = plain.__globals__.get(ROTARY)
    if not callable(function):
        fused.refused.append((name, "rotary", "its rotary function is not to be found"))
        return
    ours = rotary_function(function, kernels, ranges)
    copy = FunctionType(
        plain.__code__, {**plain.__globals__, ROTARY: ours}, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    fused.swap(name, "rotary", module, copy.__get__(module), _rotary_differs(module, function, ours))


def rotary_function(function: Any, kernels: Kernels, ranges: Ranges) -> Callable[..., tuple[Tensor, Tensor]]:
    """transformers' `apply_rotary_pos_emb` for one flat batch: rotates query and key [1, heads, tokens, dim] in place.

    Anything else than that goes to the model's own function.
    """

    def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        if more or named or query.shape[0] != 1 or cos.dim() != 3 or cos.shape[0] != 1 or query.dtype != key.dtype:
            return function(query, key, cos, sin, *more, **named)
        positions = ranges.upto(query.shape[2], query.device)
        rows = query[0].transpose(0, 1), key[0].transpose(0, 1)
        kernels.rotary_embedding(*rows, cos[0], sin[0], positions)
        return query, key

    return rotate


def _rotary_differs(module: Any, function: Any, ours: Callable[..., Any]) -> str:
    weight = next(module.parameters())
    dim = getattr(module, "head_dim", None)
    if not isinstance(dim, int):
        return "its head dimension is not known"
    part = int(dim * float(getattr(module, "partial_rotary_factor", 1.0) or 1.0))

    def states(heads: int) -> Tensor:
        made = torch.randn(1, ROWS, heads, dim, dtype=weight.dtype, device=weight.device).transpose(1, 2)
        return made[..., :part]

    angle = torch.rand(1, ROWS, part // 2, device=weight.device).repeat(1, 1, 2) * 6
    cos, sin = angle.cos().to(weight.dtype), angle.sin().to(weight.dtype)
    query, key = states(4), states(2)
    try:
        expected = function(query, key, cos, sin)
        found = ours(query.clone(), key.clone(), cos, sin)
    except Exception as error:
        return error_text(error)
    return difference(found[0], expected[0]) or difference(found[1], expected[1])
