"""Which models count as being on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from yaie_magic.catalog import cached_models, entry_of


def folder_with(root: Path, **files: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name.replace("__", ".")).write_text(content)
    return root


def test_entry_has_size_and_architecture(tmp_path: Path) -> None:
    config = json.dumps({"architectures": ["LlamaForCausalLM"]})
    folder = folder_with(tmp_path / "m", config__json=config, a__safetensors="12345", b__safetensors="678")
    entry = entry_of("m", "bundled", folder)
    assert entry is not None
    assert (entry.size_bytes, entry.architecture, entry.path) == (8, "LlamaForCausalLM", str(folder))


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"architectures": []}', '{"architectures": null}'])
def test_odd_configuration_is_no_failure(config: str, tmp_path: Path) -> None:
    entry = entry_of("m", "cache", folder_with(tmp_path / "m", config__json=config, a__safetensors="1"))
    assert entry is not None and entry.architecture == "unknown"


def test_folder_with_only_pickles_is_not_listed(tmp_path: Path) -> None:
    assert entry_of("m", "cache", folder_with(tmp_path / "m", config__json="{}", pytorch_model__bin="x")) is None


def test_no_cache_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "absent"))
    assert list(cached_models()) == []
