"""Which attention backend a model gets, and why: by what the machine, the model and the configuration can do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    asked = config.attention_backend
    if asked == "reference":
        return Wish("reference", "asked for", True)
    if asked == "emulated":
        why_not = emulator_reason(device) or dtype_reason(dtype)
        name: BackendName = "emulated"
    else:
        why_not = gpu_reason(device) or dtype_reason(dtype)
        name = "cuda"
    if not why_not:
        return Wish(name, "asked for" if asked != "auto" else "the GPU runs our kernels", asked != "auto")
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


def dtype_reason(dtype: torch.dtype) -> str:
    """Why kernels do not take `dtype`; "" when they do."""
    if dtype in KERNEL_DTYPES:
        return ""
    return f"the kernels take bfloat16 and float16, the model is in {str(dtype).removeprefix('torch.')}"


def layout_reason(layout: KVLayout, dtype: torch.dtype, block_size: int) -> str:
    """Why a layer of `layout` has no kernel; "" when all have one."""
    from yaie_cuda.attention import unsupported_reason

    for layer in layout.layers:
        reason: str = unsupported_reason(dtype, layer.key_dim, layer.value_dim, block_size)
        if reason:
            return f"layer {layer.layer}: {reason}"
    return ""


def kernel_backend(name: BackendName, device: torch.device) -> KernelAttention:
    """The kernel backend of that name for a model on `device`."""
    return KernelAttention(Kernels.on(make_launcher(name, device)), name)


def make_launcher(name: BackendName, device: torch.device) -> Launcher:
    """What launches the kernels of backend `name`."""
    if name == "emulated":
        from yaie_cuda.emulator.launcher import EmulatorLauncher

        return EmulatorLauncher()
    from yaie_cuda.device import launcher

    return launcher(device.index or 0)


def refused(name: BackendName, reason: str) -> ConfigError:
    """The error of a backend that was asked for and cannot be had."""
    return ConfigError(
        f"attention_backend={name!r}: {reason}; attention_backend='auto' takes the best one that works here"
    )
