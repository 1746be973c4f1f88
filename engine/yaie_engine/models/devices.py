"""Where a model runs and in which precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def choose_device(config: EngineConfig) -> torch.device:
    """The configured device; auto is the first GPU, else the CPU. Emulated kernels always run on the CPU.

    Raises:
        ConfigError: there is no such device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if config.device == "auto":
        return torch.device("cuda:0" if count and config.attention_backend != "emulated" else "cpu")
    device = torch.device(config.device)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ConfigError(f"device={config.device!r}: this machine has {count} CUDA devices that torch can use")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def choose_dtype(config: EngineConfig, device: torch.device, checkpoint: Any, prefers_float32: bool) -> torch.dtype:
    """The configured dtype; auto is the checkpoint's on a GPU, and on a CPU what it computes fastest in.

    Emulated kernels stand for those on a GPU: auto is then a half precision. `checkpoint` is the dtype that config.json
    names (a torch dtype, its name, or None).
    """
    if config.dtype != "auto":
        return DTYPES[config.dtype]
    named = DTYPES.get(str(checkpoint).removeprefix("torch."), torch.bfloat16)
    if device.type == "cuda":
        return named
    if config.attention_backend == "emulated":
        return torch.bfloat16 if named == torch.float32 else named
    return torch.bfloat16 if not prefers_float32 and cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16(info: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies bfloat16 in hardware; unknown counts as no."""
    try:
        with info.open(encoding="utf-8", errors="replace") as file:
            flags = next((line for line in file if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        return False
    return not BF16_FLAGS.isdisjoint(flags.split())
