"""What a model needs is compiled before it is checked: several kernels at a time, and with progress."""

from __future__ import annotations

import shutil

import pytest
import torch

from yaie_cuda.attention import paged_attention_decode_kernel
from yaie_cuda.dry_run import DryRun
from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_engine.backends.kernel import KernelAttention
from yaie_engine.config import EngineConfig
from yaie_engine.loader import load_model

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator is built by g++"),
    pytest.mark.timeout(280),
]


def decode(launcher: DryRun | EmulatorLauncher) -> torch.Tensor:
    """One sequence of three tokens."""
    torch.manual_seed(0)
    query = torch.randn(1, 1, 4, 64).bfloat16()
    keys, values = (torch.randn(2, 2, 16, 64).bfloat16() for _ in range(2))
    out = torch.full_like(query, 7.0)
    tables, lens = torch.tensor([[1]], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    paged_attention_decode_kernel(launcher, query, keys, values, tables, lens, 0.125, 0, 0.0, None, out, None)
    return out


def test_a_dry_run_names_the_kernels_and_runs_none() -> None:
    launcher = EmulatorLauncher()
    dry = DryRun(launcher)
    assert (decode(dry) == 7.0).all() and (decode(dry) == 7.0).all()
    assert [one.kernel.name for one in dry.specialisations] == ["paged_attention_decode"]
    heard: list[tuple[int, int]] = []
    launcher.warm_up(dry.specialisations * 2, lambda done, wanted: heard.append((done, wanted)))
    assert heard == [(1, 1)]
    assert not (decode(launcher) == 7.0).any()


def test_loading_compiles_with_progress_before_it_checks() -> None:
    heard: list[tuple[str, float | None]] = []
    config = EngineConfig(model="tiny", attention_backend="emulated", block_size=16)
    loaded = load_model(config, progress=lambda what, share: heard.append((what, share)))
    assert isinstance(loaded.backend, KernelAttention)
    loads = {one.kernel.name for one in loaded.backend.kernels.launcher.loaded}
    assert {"top_k_top_p_sample", "apply_penalties"} <= loads and loaded.draw_kernel is not None
    assert loaded.backend.draw_refused == ""
    compiling = [share for what, share in heard if what == "compiling kernels"]
    assert len(compiling) >= 3 and compiling == sorted(compiling) and compiling[-1] == 1.0  # type: ignore[type-var]
    whats = [what for what, _ in heard]
    assert whats.index("checking kernels") > max(i for i, what in enumerate(whats) if what == "compiling kernels")
