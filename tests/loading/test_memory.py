"""How much memory counts as free."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

import yaie_engine.memory as memory
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.memory import check_weights_fit, choose_num_blocks, free_memory, gib

CPU = torch.device("cpu")
LAYOUT = KVLayout((LayerLayout(0, 2, 8, 4), LayerLayout(1, 1, 16, 16)))


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert abs(free_memory(CPU) - psutil.virtual_memory().available) < 2**30
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert free_memory(CPU) == 1000
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 300\n")
    assert free_memory(CPU) == 1300
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(CPU) > 5000


def test_weights_are_held_against_all_memory_first_and_free_memory_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    check_weights_fit("m", 1000, torch.float32, CPU, empty=True)  # fits once what is loaded has gone
    with pytest.raises(ModelLoadError, match=r"needs 3.9 KiB .* 1000 bytes of RAM are free"):
        check_weights_fit("m", 1000, torch.float32, CPU)
    with pytest.raises(ModelLoadError, match=r"needs 7.8 KiB .* 4.9 KiB of RAM are all there is"):
        check_weights_fit("m", 2000, torch.float32, CPU, empty=True)


def test_layers_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LAYOUT.bytes_per_token(torch.float32) == 4 * (2 * 12 + 32)
    per_block = LAYOUT.bytes_per_token(torch.float32) * 16
    monkeypatch.setattr(memory, "free_memory", lambda device: 100 * per_block)
    config = EngineConfig(cpu_memory_utilization=0.5)
    assert choose_num_blocks(config, LAYOUT, torch.float32, CPU, 10**6) == 50
    assert choose_num_blocks(config, LAYOUT, torch.float32, CPU, 16) == 16
    assert choose_num_blocks(config, LAYOUT, torch.float32, CPU, 10**6, state_bytes=per_block // 4) == 50 - 16
    assert choose_num_blocks(config, KVLayout(()), torch.float32, CPU, 128) == 128


def test_bytes_for_a_person() -> None:
    assert [gib(count) for count in (17, 2048, 3 * 2**20, 5 * 2**29)] == ["17 bytes", "2.0 KiB", "3.0 MiB", "2.5 GiB"]
