"""Which attention backend a model gets, and why: by what the machine, the model and the configuration can do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError
from yaie_engine.kv_cache import KVLayout

from .base import BackendName
from .kernel import KernelAttention
from .kernels import Kernels

if TYPE_CHECKING:
    from yaie_cuda.kernel import Launcher

KERNEL_DTYPES = (torch.bfloat16, torch.float16)
WORTH_KERNELS = 64 * 2**20
"""Bytes of weights below which a model fits the caches of a CPU, and a step is bound by Python anyway."""
LAUNCH_S = 30.0
"""A replaced kernel that takes longer on the emulator never ends: its step fails, and the engine goes on."""
UNTOLD = (
    "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "value_head_dim",
    "attention_head_dim", "attention_head_size", "head_size", "kv_channels", "d_kv", "layers_block_type",
)  # fmt: skip
"""Fields of models whose keys are made of parts or sized in a way of their own: known when a layer has run."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The backend to try, before the model is known. With `required` anything else is an error."""

    name: BackendName
    reason: str
    required: bool


def wish_for(config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Wish:
    """What `config` asks for and the machine allows.

    Raises:
        ConfigError: it asks for kernels that cannot run here; the text says why and what to do.
    """
    if config.enable_torch_compile:
        if device.type != "cpu":
            raise ConfigError(f"enable_torch_compile: only for models on the CPU, and this one is on {device}")
        return Wish("reference", "the model is compiled instead", True)
    asked = "cpu" if config.quantization is not None else config.attention_backend
    if config.quantization is not None and config.attention_backend not in ("auto", "cpu"):
        raise ConfigError(
            f"quantization={config.quantization!r} needs the CPU kernels, and attention_backend="
            f"{config.attention_backend!r} has none: leave one of them out"
        )
    if asked == "reference":
        return Wish("reference", "asked for", True)
    name: BackendName
    if asked == "cpu":
        why_not, name = cpu_reason(device, dtype), "cpu"
    elif asked == "emulated":
        why_not, name = emulator_reason(device) or dtype_reason(dtype), "emulated"
    else:
        why_not, name = gpu_reason(device) or dtype_reason(dtype), "cuda"
    if not why_not:
        return Wish(name, "asked for" if asked != "auto" else "the GPU runs our kernels", asked != "auto")
    if config.quantization is not None:
        raise ConfigError(f"quantization={config.quantization!r} needs the CPU kernels: {why_not}")
    if asked != "auto":
        raise refused(name, why_not)
    return Wish("reference", why_not, False)


def gpu_reason(device: torch.device) -> str:
    """Why kernels cannot run on `device`; "" when they can."""
    from yaie_cuda.device import unusable_reason

    if device.type == "cuda":
        return unusable_reason(device.index or 0)
    return unusable_reason() or f"the model is on the {device.type.upper()}"


def emulator_reason(device: torch.device) -> str:
    """Why kernels cannot be emulated for a model on `device`; "" when they can."""
    if device.type != "cpu":
        return f"kernels are emulated on the CPU, and the model is on {device}; give device='cpu'"
    if shutil.which("g++") is None:
        return "the emulator is built by g++, which is not installed (on Debian: apt install g++)"
    return ""


def cpu_reason(device: torch.device, dtype: torch.dtype) -> str:
    """Why the CPU kernels cannot run for a model on `device`; "" when they can."""
    from yaie_cuda.cpu.build import unbuildable_reason
    from yaie_cuda.cpu.kernels import dtype_reason as cpu_dtype_reason

    if device.type != "cpu":
        return f"the model is on {device}; give device='cpu'"
    return unbuildable_reason() or cpu_dtype_reason(dtype)


def dtype_reason(dtype: torch.dtype) -> str:
    """Why kernels do not take `dtype`; "" when they do."""
    if dtype in KERNEL_DTYPES:
        return ""
    return f"the kernels take bfloat16 and float16, the model is in {str(dtype).removeprefix('torch.')}"


def worth_it(device: torch.device, nbytes: int) -> bool:
    """Whether a model of `nbytes` of weights is large enough to be fitted to the CPU that it runs on."""
    return device.type == "cpu" and nbytes >= WORTH_KERNELS


def on_this_cpu(wish: Wish, asked: str, device: torch.device, dtype: torch.dtype, nbytes: int) -> Wish:
    """`wish`, or the CPU kernels where they can run and `nbytes` of weights make them worth their building."""
    if wish.name != "reference" or wish.required or asked != "auto" or not worth_it(device, nbytes):
        return wish
    why_not = cpu_reason(device, dtype)
    return Wish("reference", why_not, False) if why_not else Wish("cpu", "the CPU runs our kernels", False)


def layout_reason(name: BackendName, layout: KVLayout, dtype: torch.dtype, block_size: int) -> str:
    """Why a layer of `layout` has no kernel of backend `name`; "" when all have one."""
    for layer in layout.layers:
        reason = unsupported_reason(name, dtype, layer.key_dim, layer.value_dim, block_size)
        if reason:
            return f"layer {layer.layer}: {reason}"
    return ""


def unsupported_reason(name: BackendName, dtype: torch.dtype, key_dim: int, value_dim: int, block_size: int) -> str:
    """Why backend `name` does not attend over such a cache; "" when it does."""
    from yaie_cuda import attention
    from yaie_cuda.cpu import kernels

    if name == "cpu":
        return kernels.unsupported_reason(dtype, key_dim, value_dim)
    reason: str = attention.unsupported_reason(dtype, key_dim, value_dim, block_size)
    return reason


def suited(wish: Wish, model_config: Any, dtype: torch.dtype, block_size: int) -> Wish:
    """`wish`, or the reference where the model's configuration rules out kernels before any weight is read.

    Raises:
        ConfigError: it does, and nothing else was asked for.
    """
    why_not = "" if wish.name == "reference" else config_reason(wish.name, model_config, dtype, block_size)
    if not why_not:
        return wish
    if wish.required:
        raise refused(wish.name, why_not)
    return Wish("reference", why_not, False)


def config_reason(name: BackendName, model_config: Any, dtype: torch.dtype, block_size: int) -> str:
    """Why no kernel serves a model of that configuration; "" when one does, or when only its layers can tell."""
    from yaie_cuda.planning import HEAD_DIMS

    size = head_dim(model_config) or HEAD_DIMS[0]
    return unsupported_reason(name, dtype, size, size, block_size)


def head_dim(model_config: Any) -> int:
    """Numbers of one key as the configuration has it; 0 where that is not the whole story."""
    text = model_config.get_text_config()
    try:
        stated = getattr(text, "head_dim", None)
        untold = any(getattr(text, name, None) for name in UNTOLD)
    except Exception:  # configurations whose layers differ raise an error of their own
        return 0
    if untold:
        return 0
    hidden, heads = getattr(text, "hidden_size", None), getattr(text, "num_attention_heads", None)
    if isinstance(stated, int) and stated > 0:
        return stated
    if stated is None and isinstance(hidden, int) and isinstance(heads, int) and heads > 0 and not hidden % heads:
        return hidden // heads
    return 0


def kernel_backend(name: BackendName, device: torch.device) -> KernelAttention:
    """The kernel backend of that name for a model on `device`."""
    return KernelAttention(Kernels.on(make_launcher(name, device)), name)


def make_launcher(name: BackendName, device: torch.device) -> Launcher:
    """What launches the kernels of backend `name`: one engine's alone, since captured graphs keep its buffers."""
    if name == "emulated":
        from yaie_cuda.emulator.launcher import EmulatorLauncher, Options

        return EmulatorLauncher(Options(limit_s=LAUNCH_S))
    from yaie_cuda.device import launcher

    return launcher(device.index or 0).apart()


def refused(name: BackendName, reason: str) -> ConfigError:
    """The error of a backend that was asked for and cannot be had."""
    return ConfigError(
        f"attention_backend={name!r}: {reason}; attention_backend='auto' takes the best one that works here"
    )
