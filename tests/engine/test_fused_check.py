"""The checks of fused modules bite: limits, epsilons, hooks and dtypes are seen, and what only a whole model shows.

A wrong kernel of the whole-model tests is right for as many rows as the check of a single module has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4MLP
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextMLP
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.step3p7.modeling_step3p7 import Step3p7MLP

from tests.engine.standin import REFERENCES, standin, standin_kernels
from tests.engine.test_fused import llama, logits
from yaie_engine import EngineConfig
from yaie_engine.fused import FusedModules, fuse
from yaie_engine.fused_check import ROWS, SCALES, difference
from yaie_engine.loader import load_model

DISAGREES = "the model with it does not agree with the plain one"
SIZES: Any = SimpleNamespace(
    hidden_size=64,
    intermediate_size=96,
    mlp_bias=False,
    hidden_act="silu",
    swiglu_limits_shared=[16.0],
    share_expert_dim=96,
    swiglu_limit=10.0,
)


def fuse_one(module: nn.Module, dtype: torch.dtype | None = torch.bfloat16) -> FusedModules:
    torch.manual_seed(3)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.1 if weight.dim() > 1 else 1)
    return fuse(nn.ModuleList([module.to(dtype)]), standin_kernels(), owns_weights=True)


# ---- the whole model


def other(name: str, factor: float, only: torch.dtype | None, adds: bool = False) -> Callable[..., None]:
    """The kernel `name`, whose result is `factor` of the right one for more rows than a module's check has."""

    def run(*arguments: Any) -> None:
        REFERENCES[name](*arguments)
        out = arguments[0] if name == "rotary_embedding" else arguments[-1]
        if len(out) > ROWS and only in (None, out.dtype) and (not adds or arguments[3] is not None):
            out.mul_(factor)

    return run


def crashing(*_: Any) -> None:
    raise ValueError("no kernel for this shape")


@pytest.mark.parametrize("only", [None, torch.bfloat16], ids=["in any arithmetic", "in its own arithmetic"])
@pytest.mark.parametrize("name", ["silu_and_mul", "rms_norm", "rotary_embedding", "the addition"])
def test_a_kernel_that_is_wrong_in_the_model_alone_is_refused(name: str, only: torch.dtype | None) -> None:
    """Also where half precision rounds too much to tell, so that float32 arithmetic decides."""
    adds = name == "the addition"
    kernel = "rms_norm" if adds else name
    wrong = other(kernel, -1.0 if name == "rotary_embedding" else 3.0, only, adds)
    kernels = replace(standin_kernels(), **{"rotary_reshape_and_cache": crashing, kernel: wrong})
    with standin(kernels):
        fused = load_model(EngineConfig(attention_backend="emulated", block_size=16, dtype="bfloat16")).fused
    assert fused is not None
    if adds:
        assert fused.swapped == {"rms_norm": 13, "silu": 6, "rotary": 6}
        assert {reason for _, kind, reason in fused.refused if kind == "residual"} == {DISAGREES}
    else:
        assert not fused.swapped and {reason for _, _, reason in fused.refused} == {DISAGREES}


def test_a_fused_mlp_follows_its_rows_into_float32() -> None:
    """So that float32 arithmetic, the judge in doubt, holds the kernel against the plain model and not that itself."""
    module = LlamaMLP(SIZES)
    assert fuse_one(module).swapped == {"silu": 1}
    rows = torch.randn(1, 3, 64, generator=torch.Generator().manual_seed(1))
    gate, up, down = (part.weight.float() for part in (module.gate_proj, module.up_proj, module.down_proj))
    expected = nn.functional.linear(nn.functional.silu(rows @ gate.T) * (rows @ up.T), down)
    module.down_proj.float()
    with torch.inference_mode():
        torch.testing.assert_close(module(rows), expected)


# ---- limits, epsilons and dtypes


class NamedRMSNorm(LlamaRMSNorm):
    """A norm whose epsilon has a name that nobody knows."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.tiny_number = self.__dict__.pop("variance_epsilon")

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.tiny_number)
        normed: Tensor = self.weight * wide.to(hidden.dtype)
        return normed


class OtherEpsilonRMSNorm(LlamaRMSNorm):
    """A norm that does not use the epsilon it carries."""

    def forward(self, hidden: Tensor) -> Tensor:
        plain = LlamaRMSNorm(len(self.weight), 1e-5)
        plain.weight = self.weight
        normed: Tensor = plain(hidden)
        return normed


class LimitedRMSNorm(LlamaRMSNorm):
    """A norm with a limit on what goes in."""

    def forward(self, hidden: Tensor) -> Tensor:
        normed: Tensor = super().forward(hidden.clamp(-10, 10))
        return normed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("build", "kind", "reason"),
    [
        (lambda: Step3p7MLP(SIZES, 0), "silu", "off by"),
        (lambda: Glm5NextTextMLP(SIZES), "silu", "off by"),
        (lambda: DeepseekV4MLP(SIZES), "silu", "off by"),
        (lambda: LimitedRMSNorm(64), "rms_norm", "off by"),
        (lambda: OtherEpsilonRMSNorm(64), "rms_norm", "off by"),
        (lambda: NamedRMSNorm(64), "rms_norm", "its epsilon is not known"),
        (lambda: nn.RMSNorm(64), "rms_norm", "its epsilon is not known"),
    ],
    ids=["step", "glm", "deepseek", "limited norm", "other epsilon", "unknown epsilon", "no epsilon"],
)
def test_limits_and_epsilons_that_no_kernel_knows_are_refused(
    build: Callable[[], nn.Module], kind: str, reason: str, dtype: torch.dtype
) -> None:
    fused = fuse_one(build(), dtype)
    assert not fused.swapped
    assert [(other_kind, reason in why) for _, other_kind, why in fused.refused] == [(kind, True)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_of_all_sizes_are_no_reason_to_refuse_what_is_right(dtype: torch.dtype) -> None:
    """In float16 the large rows overflow and the small ones vanish, in the module and in the kernel."""
    assert len(SCALES) == ROWS
    assert fuse_one(LlamaMLP(SIZES), dtype).swapped == {"silu": 1}
    assert fuse_one(LlamaRMSNorm(64), dtype).swapped == {"rms_norm": 1}


def test_each_row_is_held_to_its_own_size() -> None:
    expected = torch.tensor([[1e-3, -1e-3], [1e4, -1e4]])
    assert not difference(expected * (1 + 1e-8), expected)
    assert "off by" in difference(expected + 1e-5, expected)
    overflown = torch.tensor([[1.0, 2.0], [torch.inf, 0.0]])
    assert not difference(torch.tensor([[1.0, 2.0], [torch.nan, 0.0]]), overflown)
    assert "off by inf" in difference(torch.tensor([[1.0, torch.nan], [torch.inf, 0.0]]), overflown)


class ScaledMLP(LlamaMLP):
    """A gated MLP whose first weight has another dtype than its linear layers."""

    def __init__(self, factor: float) -> None:
        super().__init__(SIZES)  # type: ignore[no-untyped-call]
        linears = dict(self._modules)
        self._modules.clear()
        self.scale = nn.Parameter(torch.full((96,), factor))
        self._modules.update({name: part and part.bfloat16() for name, part in linears.items()})

    def forward(self, x: Tensor) -> Tensor:
        states = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        down: Tensor = self.down_proj((states.float() * self.scale).to(x.dtype))
        return down


class BrokenMLP(LlamaMLP):
    """A gated MLP that does not run by itself."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("not without the others")


def test_a_module_that_the_check_cannot_run_or_that_mixes_dtypes_is_refused_alone() -> None:
    model = nn.ModuleList([ScaledMLP(2.0), BrokenMLP(SIZES), LlamaMLP(SIZES).bfloat16()])  # type: ignore[no-untyped-call]
    fused = fuse(model, standin_kernels(), owns_weights=True)
    assert fused.swapped == {"silu": 1}
    assert ("1", "silu", "RuntimeError: not without the others") in fused.refused
    assert next(why for name, _, why in fused.refused if name == "0").startswith("the kernel's result is off by")


# ---- who listens


@pytest.mark.parametrize("how", ["register_forward_hook", "register_forward_pre_hook", "replaced"])
@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "act_fn"])
def test_a_part_that_somebody_listens_to_is_not_left_out(part: str, how: str) -> None:
    model, heard = llama(), list[int]()
    mlp = model.model.layers[0].mlp
    mlp.act_fn = nn.SiLU()
    module = getattr(mlp, part)
    if how == "replaced":
        plain = module.forward

        def replaced(*args: Any) -> Any:
            heard.append(1)
            return plain(*args)

        module.forward = replaced
    else:
        getattr(module, how)(lambda *_: heard.append(1))
    fused = fuse(model, standin_kernels(), owns_weights=True)
    assert fused.swapped["silu"] == 1
    assert ("model.layers.0.mlp", "silu", "it has hooks") in fused.refused
    heard.clear()
    logits(model)
    assert heard == [1]


def test_who_listens_to_what_still_runs_goes_on_hearing() -> None:
    model, heard = llama(), list[str]()
    mlp = model.model.layers[0].mlp
    for name, module in (("mlp", mlp), ("down", mlp.down_proj), ("norm", model.model.norm)):
        module.register_forward_hook(lambda *_, name=name: heard.append(name))
    fused = fuse(model, standin_kernels(), owns_weights=True)
    heard.clear()
    logits(model)
    assert fused.swapped == {"rms_norm": 5, "silu": 2, "rotary": 2} and heard == ["down", "mlp", "norm"]


def test_a_part_of_a_norm_that_somebody_listens_to_is_not_left_out() -> None:
    norm = LlamaRMSNorm(64)
    norm.probe = nn.Identity()
    norm.probe.register_forward_hook(lambda *_: None)
    fused = fuse_one(norm)
    assert not fused.swapped and fused.refused == [("0", "rms_norm", "it has hooks")]


def test_the_checks_draw_nothing_from_the_callers_generator() -> None:
    model = llama()
    before = torch.get_rng_state()
    fuse(model, standin_kernels(), owns_weights=True)
    assert torch.equal(torch.get_rng_state(), before)
