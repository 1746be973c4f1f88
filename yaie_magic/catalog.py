"""Models on this machine: the bundled ones, and those that the Hugging Face cache holds with their weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

WEIGHTS = (".safetensors", ".gguf")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that loads without a download. `name` is what `load` and `--model` take."""

    name: str
    source: Literal["bundled", "cache"]
    architecture: str
    size_bytes: int
    path: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    def to_text(self) -> str:
        """One line of a table."""
        return f"{self.name:<40} {self.source:<8} {self.size_bytes / 2**20:>10.1f} MiB  {self.architecture}"


def models_here() -> list[ModelEntry]:
    """Bundled models first, then the cache by name."""
    return [*bundled_models(), *sorted(cached_models(), key=lambda entry: entry.name)]


def bundled_models() -> Iterator[ModelEntry]:
    """Those that come with the package."""
    from yaie_engine.models.bundled import bundled_names, bundled_root

    for name in bundled_names():
        entry = entry_of(name, "bundled", bundled_root() / name)
        if entry is not None:
            yield entry


def cached_models() -> Iterator[ModelEntry]:
    """Each model of the Hugging Face cache (HF_HOME counts) whose newest snapshot has weights that we read."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return
    for repository in repositories:
        revisions = sorted(repository.revisions, key=lambda revision: revision.last_modified)
        if repository.repo_type == "model" and revisions:
            entry = entry_of(repository.repo_id, "cache", Path(revisions[-1].snapshot_path))
            if entry is not None:
                yield entry


def entry_of(name: str, source: Literal["bundled", "cache"], folder: Path) -> ModelEntry | None:
    """The entry of a model folder; None when it has no weights of a kind that we read."""
    weights = [path for path in folder.iterdir() if path.suffix in WEIGHTS] if folder.is_dir() else []
    if not weights:
        return None
    size = sum(path.stat().st_size for path in weights)
    return ModelEntry(name, source, architecture_of(folder), size, str(folder))


def architecture_of(folder: Path) -> str:
    """The first architecture that config.json names; GGUF files carry theirs inside."""
    try:
        named = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"]
        return str(named[0])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "GGUF" if any(folder.glob("*.gguf")) else "unknown"
