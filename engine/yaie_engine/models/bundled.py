"""The models that come with the package, each a folder with SHA256SUMS over its files."""

from __future__ import annotations

import hashlib
import importlib.resources
from pathlib import Path

from yaie_engine.errors import ModelLoadError

CHECKSUMS = "SHA256SUMS"


def bundled_root() -> Path:
    """The folder that holds one folder per bundled model."""
    return Path(str(importlib.resources.files("yaie_engine"))) / "bundled"


def bundled_names() -> list[str]:
    """Names that load without a network."""
    root = bundled_root()
    return sorted(path.name for path in root.iterdir() if (path / "config.json").is_file()) if root.is_dir() else []


def bundled_folder(name: str) -> Path | None:
    """The folder of a bundled model, its files verified; None when there is no such model.

    Raises:
        ModelLoadError: a file is missing or not the one that was shipped.
    """
    if name not in bundled_names():
        return None
    folder = bundled_root() / name
    for line in _lines(folder / CHECKSUMS, name):
        digest, _, file_name = line.partition("  ")
        if Path(file_name).name != file_name or _digest(folder / file_name) != digest:
            raise ModelLoadError(f"the bundled model {name!r} is damaged ({file_name}): install yaie-magic again")
    return folder


def _lines(path: Path, name: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ModelLoadError(f"the bundled model {name!r} has no checksums: install yaie-magic again") from error


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
