"""From the name that a person typed to a folder on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError, UnknownModelError
from yaie_engine.validation import did_you_mean

from .bundled import bundled_folder, bundled_names
from .hub import REPO_ID, Progress, hub_folder
from .hub_calls import cached_names


@dataclass(frozen=True, slots=True)
class Source:
    """A model on disk. `gguf_file` names the file inside `folder` when it is a GGUF model."""

    name: str
    folder: Path
    gguf_file: str | None = None
    bundled: bool = False


MAX_NAME = 1024
"""Bytes of a name or path: more than any file system or the Hub takes for one."""


def resolve(config: EngineConfig, progress: Progress, weights: bool = True) -> Source:
    """Bundled name, local folder, .gguf file or Hub id, in this order. `weights` False: only its tokenizer is wanted.

    Raises:
        ConfigError: a revision of a model on this machine is asked for.
        UnknownModelError: there is no such model; the text suggests the nearest name.
    """
    name = config.model
    if len(os.fsencode(name)) > MAX_NAME:
        raise UnknownModelError(f"a model name of {len(name)} characters; at most {MAX_NAME} bytes are allowed")
    if config.revision is not None and (name in bundled_names() or _exists(name)):
        raise ConfigError(f"revision={config.revision!r} is for models of the Hub, {name!r} is on this machine")
    if folder := bundled_folder(name):
        return Source(name, folder, bundled=True)
    path = _path(name)
    if _exists(name) and path.is_dir():
        return Source(path.resolve().name, path)
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise UnknownModelError(f"no such file: {name}")
        return Source(path.stem, path.parent, gguf_file=path.name)
    if not REPO_ID.fullmatch(name):
        raise UnknownModelError(unknown(name))
    return Source(name, hub_folder(name, config.revision, progress, weights))


def unknown(name: str) -> str:
    """One line for a name that leads nowhere."""
    known = [*bundled_names(), *cached_names()]
    return f"no model {name!r}: it is neither a bundled model, nor a folder, nor a Hub id{did_you_mean(name, known)}"


def _path(name: str) -> Path:
    """The path of a name, with a known user's `~` filled in."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # nobody of that name
        return Path(name)


def _exists(name: str) -> bool:
    """Whether a path leads somewhere; one that the file system refuses to look up does not."""
    try:
        return _path(name).exists()
    except OSError:
        return False
