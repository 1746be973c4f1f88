"""Modules of a transformers model whose arithmetic our kernels do in one launch instead of many.

A module is swapped only after a check on random inputs: the kernel's result must be that of the module's own forward,
bit for bit or within one rounding of the model's dtype (fused_check.py). Inputs are of several sizes: limits and
epsilons show. A module is left alone where somebody listens to a part that would be left out. The module's weights
and place stay; only its `forward` is replaced on that one object, and `restore` takes the replacement off again.

Layers whose norms are ours get their hidden states as a `ResidualStream`, so that the addition in front of a norm is
made by the norm. Whether their code bears that only a run of the whole model shows: `keep_residuals` decides after it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .backends.kernels import ModuleKernels, Op
from .fused_check import HOOKED, difference, differs, error_text, hooked, module_result
from .fused_rotary import Ranges, fuse_rotary, rotates
from .models.joined import PartLinear
from .residual import ResidualStream, streaming

KINDS = ("rms_norm", "residual", "silu", "gelu_tanh", "rotary", "rotary_write")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "gelu_tanh": partial(F.gelu, approximate="tanh")}
DISAGREES = "the model with it does not agree with the plain one"


@dataclass(frozen=True, slots=True)
class JoinedMlp:
    """A gated MLP that runs on weights that were joined for it: `whole` says whether they are still those of its
    layers, `again` joins them anew."""

    module: nn.Module
    kind: str
    whole: Callable[[], bool]
    again: Callable[[], None]


@dataclass(slots=True)
class FusedModules:
    """What was swapped and what was not: `refused` holds (module name, kind, reason).

    `added` names the norms that were seen to make the addition in front of them, `wrote` the attention modules that
    left their rotation to the write.
    """

    swapped: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    added: set[str] = field(default_factory=set)
    wrote: set[str] = field(default_factory=set)
    residuals: bool = True
    writes: bool = True
    _modules: list[nn.Module] = field(default_factory=list)
    _layers: dict[str, nn.Module] = field(default_factory=dict)
    _joined: list[JoinedMlp] = field(default_factory=list)

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
        layer.forward = streaming(layer)
        self._layers[name] = layer

    def use(self, residuals: bool, writes: bool) -> None:
        """Whether norms may make additions and writes rotate; what depends on a layer's code is tried this way."""
        if not self.residuals and residuals:
            for layer in self._layers.values():
                layer.forward = streaming(layer)
        if self.residuals and not residuals:
            self._unstream()
        self.residuals, self.writes = residuals, writes
        self.added.clear()
        self.wrote.clear()

    def settle(self) -> None:
        """After a run of the whole model as it will be: count what it did, and say why not where it did not."""
        if self.residuals and self._layers and not self.added:
            self._unstream()
        if self.added:
            self.swapped["residual"] = len(self.added)
        else:
            reason = "no norm follows an addition" if self.residuals else DISAGREES
            self.refused += [(name, "residual", reason) for name in self._layers]
        if self.wrote:
            self.swapped["rotary_write"] = len(self.wrote)
        if not self.writes:
            self.refused += [("", "rotary_write", DISAGREES)] * self.swapped["rotary"]

    def _unstream(self) -> None:
        for layer in self._layers.values():
            layer.__dict__.pop("forward", None)

    def renew(self) -> None:
        """Take over weights that somebody put in the place of those that modules were joined of."""
        for mlp in [mlp for mlp in self._joined if not mlp.whole()]:
            self._joined.remove(mlp)
            mlp.module.__dict__.pop("forward", None)
            self.swapped[mlp.kind] -= 1
            with torch.inference_mode():
                mlp.again()

    def restore(self) -> None:
        """Give every module its own forward back."""
        for module in (*self._modules, *self._layers.values()):
            module.__dict__.pop("forward", None)
        self._modules.clear()
        self._layers.clear()
        self._joined.clear()

    def __str__(self) -> str:
        """ "fused: rms_norm 13, silu 6, not rotary 3 (why)": how many of each; of those refused the first reason."""
        counts = Counter(kind for _, kind, _ in self.refused)
        why = {kind: reason for _, kind, reason in reversed(self.refused)}
        parts = [f"{kind} {self.swapped[kind]}" for kind in KINDS if self.swapped[kind]] or ["nothing"]
        parts += [f"not {kind} {counts[kind]} ({why[kind]})" for kind in KINDS if counts[kind]]
        return f"fused: {', '.join(parts)}"


def fuse(model: nn.Module, kernels: ModuleKernels, owns_weights: bool) -> FusedModules:
    """Swap what passes its check. Gate and up weights are joined only when the model's weights are ours alone."""
    fused = FusedModules()
    ranges, like = Ranges(), next(model.parameters())
    with torch.inference_mode():
        for name, module in model.named_modules():
            if "forward" in module.__dict__:
                continue  # somebody else has replaced it
            if is_rms_norm(module):
                _fuse_norm(fused, name, module, kernels)
            elif _is_gated_mlp(module):
                _fuse_mlp(fused, name, module, kernels, owns_weights)
            elif rotates(module):
                fuse_rotary(fused, name, module, kernels, ranges, like)
    _stream_layers(fused, model)
    return fused


# ---- RMSNorm


def is_rms_norm(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    return "RMSNorm" in type(module).__name__ and weight is not None and weight.dim() == 1 and _takes_rows(module)


def _takes_rows(module: nn.Module) -> bool:
    """Whether its forward takes the hidden states and nothing else: a gate, say, the kernels know nothing of."""
    return len(inspect.signature(type(module).forward).parameters) == 2


def _fuse_norm(fused: FusedModules, name: str, module: Any, kernels: ModuleKernels) -> None:
    eps = eps_of(module)
    if eps is None or hooked(_parts(module)):
        fused.swap(name, "rms_norm", module, module.forward, HOOKED if eps is not None else "its epsilon is not known")
        return
    norms = [rms_norm_forward(module, eps, op) for op in kernels.norms]
    reasons = [differs(module, norm, module.weight) for norm in norms]
    chosen = reasons.index("") if "" in reasons else 0
    norm, reason = norms[chosen], reasons[chosen]
    add_and_norm = add_norm_forward(module, eps, kernels.norms[chosen])
    why_not = reason or _added_differs(module, add_and_norm)

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


def rms_norm_forward(module: Any, eps: float, op: Op) -> Callable[[Tensor], Tensor]:
    """The norm in one launch; other dtypes than the weight's go the module's own way."""
    plain = module.forward

    def forward(hidden: Tensor) -> Tensor:
        if hidden.dtype != module.weight.dtype:
            result: Tensor = plain(hidden)
            return result
        out = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        width = hidden.shape[-1]
        op(hidden.reshape(-1, width), module.weight, eps, None, out.view(-1, width))
        return out

    return forward


def add_norm_forward(module: Any, eps: float, op: Op) -> Callable[[Tensor, Tensor], Tensor]:
    """The addition to a residual stream and its norm in one launch; the stream, contiguous, is written."""

    def forward(hidden: Tensor, stream: Tensor) -> Tensor:
        out = torch.empty(stream.shape, dtype=stream.dtype, device=stream.device)
        width = stream.shape[-1]
        rows = hidden.reshape(-1, width), stream.view(-1, width)
        op(rows[0], module.weight, eps, rows[1], out.view(-1, width))
        return out

    return forward


def eps_of(module: Any) -> float | None:
    values = (getattr(module, name, None) for name in ("variance_epsilon", "eps"))
    return next((float(value) for value in values if isinstance(value, int | float)), None)


def _parts(module: nn.Module, kept: str = "") -> list[nn.Module]:
    """All modules inside of `module`, without the one that is `kept`."""
    return [part for name, child in module.named_children() if name != kept for part in child.modules()]


def _added_differs(module: Any, add_and_norm: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Why the norm cannot make the addition; the sum must be the same to the bit."""
    try:
        _, hidden = module_result(module, module.weight)
        stream = hidden.flip(-1) / 2
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
            norms = [child for child in layer.children() if is_rms_norm(child)]
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


def _fuse_mlp(fused: FusedModules, name: str, module: Any, kernels: ModuleKernels, owns_weights: bool) -> None:
    kind = _activation(module, kernels)
    reason = _not_joinable(module, owns_weights) if kind else "no kernel computes its activation"
    if not kind or reason:
        fused.swap(name, kind or "silu", module, module.forward, reason)
        return
    gate = kernels.gates[kind]
    if isinstance(module.gate_proj, PartLinear):
        product: Any = module.gate_proj.joined.product
        forward = gated_mlp_forward(module, product, gate)
        like = torch.empty(1, product.in_features, dtype=product.dtype)
        reason = differs(module, forward, like)
    else:
        weight, bias = _joined(module.gate_proj, module.up_proj)
        forward = gated_mlp_forward(module, plain_product(weight, bias), gate)
        reason = differs(module, forward, module.gate_proj.weight)
        if not reason:  # the two layers become views, so that the weights are there once
            _share_out(module, weight, bias)
    fused.swap(name, kind, module, forward, reason)
    if not reason:
        again = partial(_fuse_mlp, fused, name, module, kernels, owns_weights)
        fused._joined.append(JoinedMlp(module, kind, _still(module), again))


def _not_joinable(module: Any, owns_weights: bool) -> str:
    gate, up = module.gate_proj, module.up_proj
    if hooked(_parts(module, kept="down_proj")):
        return HOOKED
    if isinstance(gate, PartLinear) and isinstance(up, PartLinear) and gate.is_followed_by(up):
        return ""
    if type(gate) is not nn.Linear or type(up) is not nn.Linear:
        return f"its gate is a {type(gate).__name__}"
    if gate.weight.shape != up.weight.shape or (gate.bias is None) != (up.bias is None):
        return "gate and up have different shapes"
    if not owns_weights:
        return "its weights belong to the caller, and joining them would copy them"
    return ""


def _activation(module: Any, kernels: ModuleKernels) -> str:
    """Which of the kernels' gates the module computes with; "" for none."""
    activation = getattr(module, "act_fn", None)
    if not callable(activation):
        return ""
    points = torch.linspace(-4, 4, 33)
    try:
        values = activation(points)
        same = (name for name in kernels.gates if torch.allclose(values, ACTIVATIONS[name](points), 1e-6, 1e-7))
        return next(same, "")
    except Exception:  # it takes something else than a tensor
        return ""


def _joined(gate: nn.Linear, up: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight [2 * intermediate, hidden] and bias of both layers as one."""
    biases = [bias.data for linear in (gate, up) if (bias := linear._parameters["bias"]) is not None]
    return torch.cat((gate.weight.data, up.weight.data)), torch.cat(biases) if biases else None


def _share_out(module: Any, weight: Tensor, bias: Tensor | None) -> None:
    for index, linear in enumerate((module.gate_proj, module.up_proj)):
        linear.weight.data = weight.chunk(2)[index]
        if bias is not None:
            linear.bias.data = bias.chunk(2)[index]


def _still(module: Any) -> Callable[[], bool]:
    """Whether gate and up of a module are the layers that they are now, over the same memory."""

    def look() -> list[object]:
        layers = [module._modules.get("gate_proj"), module._modules.get("up_proj")]
        tensors = [tensor for layer in layers if layer is not None for tensor in layer.parameters(recurse=False)]
        return [*map(id, layers), *(tensor.data_ptr() for tensor in tensors)]

    before, held = look(), (module.gate_proj, module.up_proj)
    return lambda: bool(held) and look() == before


def plain_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Hidden states of a wider dtype are those of float32 arithmetic (tiers/upcast.py): the weight follows them."""

    def product(hidden: Tensor) -> Tensor:
        return F.linear(hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype))

    return product


def gated_mlp_forward(module: Any, product: Callable[[Tensor], Tensor], gate: Op) -> Callable[[Tensor], Tensor]:
    """Gate and up in one `product`, their gating in one launch, then the module's own way down."""

    def forward(hidden: Tensor) -> Tensor:
        both = product(hidden)
        out = both.new_empty(*both.shape[:-1], both.shape[-1] // 2)
        gate(both.view(-1, both.shape[-1]), out.view(-1, out.shape[-1]))
        down: Tensor = module.down_proj(out)
        return down

    return forward
