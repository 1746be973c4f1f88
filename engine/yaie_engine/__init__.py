"""The engine of YAIE Magic: continuous batching over a paged KV cache with radix prefix sharing.

Importing this package is free of torch, transformers and pydantic; the names load what they need when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import EngineConfig
    from .errors import (
        AsleepError,
        BusyError,
        CapacityError,
        ConfigError,
        EngineDeadError,
        InvariantError,
        KernelError,
        ModelLoadError,
        QueueFullError,
        RequestError,
        RequestTimeout,
        StoreError,
        YaieError,
    )
    from .generation import Generation
    from .llm import LLM
    from .outputs import CompletionOutput, Logprob, RequestOutput
    from .params import SamplingParams
    from .snapshot import EngineSnapshot

_HOME = {
    "LLM": "llm",
    "EngineConfig": "config",
    "SamplingParams": "params",
    "RequestOutput": "outputs",
    "CompletionOutput": "outputs",
    "Logprob": "outputs",
    "Generation": "generation",
    "EngineSnapshot": "snapshot",
    "YaieError": "errors",
    "ConfigError": "errors",
    "RequestError": "errors",
    "CapacityError": "errors",
    "QueueFullError": "errors",
    "RequestTimeout": "errors",
    "ModelLoadError": "errors",
    "EngineDeadError": "errors",
    "AsleepError": "errors",
    "BusyError": "errors",
    "StoreError": "errors",
    "KernelError": "errors",
    "InvariantError": "errors",
}
__all__ = [
    "LLM",
    "AsleepError",
    "BusyError",
    "CapacityError",
    "CompletionOutput",
    "ConfigError",
    "EngineConfig",
    "EngineDeadError",
    "EngineSnapshot",
    "Generation",
    "InvariantError",
    "KernelError",
    "Logprob",
    "ModelLoadError",
    "QueueFullError",
    "RequestError",
    "RequestOutput",
    "RequestTimeout",
    "SamplingParams",
    "StoreError",
    "YaieError",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
