"""A GPU that is lost while an engine is loaded: the error says so, whatever it was that met it first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.standin import standin, standin_kernels
from yaie_cuda.errors import KernelLaunchError
from yaie_engine import LLM, ConfigError, EngineDeadError, ModelLoadError
from yaie_engine.kv_cache import KVCache

SAID = r"the GPU was lost \(.*\): nothing in this process can use it any more; restart the kernel, or the process"
ILLEGAL = RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")
REFUSED = KernelLaunchError("rms_norm: cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS: words")


def raising(error: Exception) -> Callable[..., Any]:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    return run


@pytest.mark.parametrize("op", ["paged_attention_decode", "top_k_top_p_sample", "apply_penalties"])
@pytest.mark.parametrize("error", [ILLEGAL, REFUSED], ids=["torch", "driver"])
def test_by_a_kernel_that_is_checked(folder: Path, op: str, error: Exception) -> None:
    """No other backend is tried, since none would work."""
    with (
        standin(replace(standin_kernels(), **{op: raising(error)})),
        pytest.raises(EngineDeadError, match=SAID) as caught,
    ):
        LLM(str(folder), attention_backend="emulated", block_size=16, num_blocks=16)
    assert str(caught.value).count("the GPU was lost") == 1


def test_before_the_cache_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as no memory where it is met first; the reason behind that says what it is."""
    monkeypatch.setattr(KVCache, "allocate", raising(ILLEGAL))
    with pytest.raises(EngineDeadError, match=SAID):
        LLM(str(folder), num_blocks=16)
    monkeypatch.setattr(KVCache, "allocate", raising(torch.OutOfMemoryError("CUDA out of memory.")))
    with pytest.raises(ModelLoadError, match="no memory for 16 KV blocks"):
        LLM(str(folder), num_blocks=16)


def test_an_error_that_a_gpu_survives_only_rules_out_the_kernels(folder: Path) -> None:
    kernels = replace(standin_kernels(), paged_attention_decode=raising(RuntimeError("CUDA error: invalid argument")))
    with standin(kernels), pytest.raises(ConfigError, match="RuntimeError: CUDA error: invalid argument"):
        LLM(str(folder), attention_backend="emulated", block_size=16, num_blocks=16)
