"""Models from the Hugging Face Hub, through its cache (HF_HOME): only what is served is downloaded."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from yaie_engine.errors import ModelLoadError, UnknownModelError
from yaie_engine.memory import gib
from yaie_engine.validation import did_you_mean

from .bundled import bundled_names
from .hub_calls import NoNetworkError, attempt, cached_names
from .json_file import read_json
from .screen import INDEX, PICKLES, pickled, screen_json

Progress = Callable[[str, float | None], None]

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
SMALL = ("config.json", "generation_config.json", "chat_template.jinja", INDEX)
TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja",
)  # fmt: skip


def hub_folder(repo_id: str, revision: str | None, progress: Progress, weights: bool = True) -> Path:
    """The cached snapshot of a model, downloaded where it is missing; `weights` False takes only its tokenizer.

    Runs on the calling thread and may be interrupted: files that are complete stay in the cache, one that was cut
    short is resumed next time.

    Raises:
        ModelLoadError: no such model, no network, no disk, no access, or nothing in it that is served.
    """
    try:
        return _download(repo_id, revision, progress) if weights else _tokenizer(repo_id, revision, progress)
    except NoNetworkError as error:
        folder = cached_folder(repo_id, revision, "config.json" if weights else "tokenizer_config.json")
        if folder is None:
            near = did_you_mean(repo_id, [*bundled_names(), *cached_names()])
            advice = near or ": check the network, or load the bundled model 'tiny'"
            raise (UnknownModelError if near else ModelLoadError)(
                f"{repo_id!r} is not in the cache and the Hub cannot be reached ({error}){advice}"
            ) from error
        progress(f"the Hub cannot be reached, using the cached {repo_id}", None)
        return folder


def cached_folder(repo_id: str, revision: str | None, name: str) -> Path | None:
    """The cached snapshot that has the file `name`; other files of it may be missing."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo_id, name, revision=revision)
    return Path(path).parent if isinstance(path, str) else None


def _ask(repo_id: str, revision: str | None, progress: Progress) -> tuple[str, dict[str, int]]:
    """The commit of a revision, and the size of each of its files."""
    from huggingface_hub import HfApi

    progress(f"asking the Hub for {repo_id}", None)
    info = attempt(repo_id, lambda: HfApi().model_info(repo_id, revision=revision, files_metadata=True, timeout=10))
    return str(info.sha), {file.rfilename: int(file.size or 0) for file in info.siblings or ()}


def _tokenizer(repo_id: str, revision: str | None, progress: Progress) -> Path:
    commit, sizes = _ask(repo_id, revision, progress)
    folders = [_fetch(repo_id, name, commit, progress) for name in TOKENIZER if name in sizes]
    if not folders:
        raise ModelLoadError(f"{repo_id} has no tokenizer files")
    return folders[0]


def _download(repo_id: str, revision: str | None, progress: Progress) -> Path:
    commit, sizes = _ask(repo_id, revision, progress)
    if "config.json" not in sizes:
        raise ModelLoadError(f"{repo_id} has no config.json; {_advice(repo_id, sizes)}")
    # By its branch first: that notes in the cache which commit the branch names, so that it is found without a network.
    _fetch(repo_id, "config.json", revision or "main", progress)
    small = [name for name in dict.fromkeys((*SMALL, *TOKENIZER)) if name in sizes]
    folder = next(iter([_fetch(repo_id, name, commit, progress) for name in small]))
    screen_json(folder)
    missing = [name for name in _weight_names(repo_id, folder, sizes) if not (folder / name).exists()]
    total = sum(sizes[name] for name in missing)
    _check_disk(repo_id, folder, total)
    done = 0
    for name in missing:
        _fetch(repo_id, name, commit, progress, (done, max(1, total)))
        done += sizes[name]
    return folder


def _weight_names(repo_id: str, folder: Path, sizes: dict[str, int]) -> list[str]:
    if (folder / INDEX).exists():
        named = read_json(folder / INDEX, 2**26).get("weight_map")
        names = sorted({str(name) for name in named.values()}) if isinstance(named, dict) else []
        if names and all(name in sizes for name in names):
            return names
        raise ModelLoadError(f"{repo_id}: {INDEX} names files that the repository does not have")
    if "model.safetensors" in sizes:
        return ["model.safetensors"]
    raise ModelLoadError(_advice(repo_id, sizes))


def _advice(repo_id: str, sizes: dict[str, int]) -> str:
    pickles = [name for name in sizes if Path(name).suffix in PICKLES]
    ggufs = [name for name in sizes if name.endswith(".gguf")]
    if ggufs:
        return f"{repo_id} has GGUF files only: download one, such as {ggufs[0]}, and load its path"
    return pickled(repo_id, repo_id, pickles[0]) if pickles else f"{repo_id} has no weights in safetensors"


def _check_disk(repo_id: str, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ModelLoadError(
            f"{repo_id} needs {gib(needed)} of disk and {gib(free)} are free: make room or set HF_HOME to another disk"
        )


def _fetch(repo_id: str, name: str, commit: str, progress: Progress, share: tuple[int, int] | None = None) -> Path:
    """Download one file into the cache; `share` is (bytes before it, bytes in all) for the progress."""
    from huggingface_hub import hf_hub_download

    bar = _bar(f"downloading {name}", progress, share)
    path = attempt(repo_id, lambda: hf_hub_download(repo_id, name, revision=commit, tqdm_class=bar))
    return Path(path).parent


def _bar(what: str, progress: Progress, share: tuple[int, int] | None) -> type[tqdm[Any]]:
    """A tqdm class that draws nothing and reports how much of all weights is there."""

    class Reporting(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._done = int(kwargs.get("initial") or 0)
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self._done += int(n or 0)
            progress(what, (share[0] + self._done) / share[1] if share else None)
            return None

    return Reporting
