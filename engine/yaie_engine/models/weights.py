"""Weights and tokenizer of a screened folder, read by transformers: safetensors, no network, no foreign code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from yaie_engine.errors import ModelLoadError
from yaie_engine.panics import unless_foreign

FIXED = {"local_files_only": True, "trust_remote_code": False}


def read_model(folder: Path, dtype: torch.dtype, gguf_file: str | None = None) -> Any:
    """The causal language model of `folder` on the CPU, in eval mode.

    Raises:
        ModelLoadError: unknown architecture, missing or wrong tensors, damaged files.
    """
    from transformers import AutoModelForCausalLM

    more: dict[str, Any] = {"gguf_file": gguf_file} if gguf_file else {"use_safetensors": True}
    with offline_and_quiet():
        try:
            read: Any = AutoModelForCausalLM.from_pretrained
            with _reading:
                model, info = read(str(folder), dtype=dtype, output_loading_info=True, **FIXED, **more)
        except MemoryError:
            raise
        except BaseException as error:  # transformers raises many kinds; each means that this folder cannot be read
            unless_foreign(error)
            raise ModelLoadError(explain(folder, error)) from error
    for key, words in (("missing_keys", "lacks"), ("mismatched_keys", "has the wrong shape for"), ("error_msgs", "")):
        problems = sorted(str(item) for item in info.get(key) or ())
        if problems:
            raise ModelLoadError(
                f"{folder.name}: the checkpoint {words} {len(problems)} tensors ({', '.join(problems[:3])}): "
                "it is incomplete or belongs to another configuration; download it again"
            )
    return model.eval()


def read_config(folder: Path, gguf_file: str | None = None) -> Any:
    """The configuration of `folder` as transformers understands it.

    Raises:
        ModelLoadError: it cannot be understood, or transformers has no causal language model for it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    more: dict[str, Any] = {"gguf_file": gguf_file} if gguf_file else {}
    with offline_and_quiet():
        try:
            config: Any = AutoConfig.from_pretrained(str(folder), **FIXED, **more)
        except BaseException as error:  # as above
            unless_foreign(error)
            raise ModelLoadError(explain(folder, error)) from error
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ModelLoadError(explain(folder, ValueError("Unrecognized configuration class")))
    return config


def read_tokenizer(folder: Path, gguf_file: str | None = None) -> Any:
    """The tokenizer of `folder`.

    Raises:
        ModelLoadError: there is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    more = {"gguf_file": gguf_file} if gguf_file else {}
    with offline_and_quiet():
        try:
            return AutoTokenizer.from_pretrained(str(folder), **FIXED, **more)
        except BaseException as error:  # as above
            unless_foreign(error)
            raise ModelLoadError(
                f"{folder.name}: no tokenizer could be read ({first_line(error)}); "
                "give tokenizer= a folder that has one"
            ) from error


def explain(folder: Path, error: BaseException) -> str:
    """One line for what transformers could not do."""
    text = first_line(error)
    if "Unrecognized configuration class" in text or "does not recognize this architecture" in text:
        return f"{folder.name}: unsupported architecture: this transformers has no causal language model for it"
    if isinstance(error, ImportError):
        return f"{folder.name}: a package is missing: {text}"
    return f"{folder.name}: the model cannot be read: {text}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, shortened."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


@dataclass(slots=True)
class _Settings:
    """Of transformers and its Hub client, which know one value per process."""

    offline: bool
    bars: bool
    level: int


_lock = threading.Lock()
_reading = threading.Lock()
"""Models are read one by one: meanwhile torch's default dtype is the model's, and afterwards that of before."""
_before: _Settings | None = None
_inside = 0


@contextmanager
def offline_and_quiet() -> Iterator[None]:
    """Within the block transformers neither asks the Hub about a local folder nor prints bars and advice.

    Loads may overlap (an interrupted one ends on its own thread): the first in sets, the last out restores.
    """
    global _before, _inside
    with _lock:
        _inside += 1
        if _before is None:
            _before = _quieten()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _before is not None:
                _restore(_before)
                _before = None


def _quieten() -> _Settings:
    from huggingface_hub import constants
    from transformers.utils import logging as hf_logging

    before = _Settings(constants.HF_HUB_OFFLINE, hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity())
    constants.HF_HUB_OFFLINE = True
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity(logging.ERROR)
    return before


def _restore(before: _Settings) -> None:
    from huggingface_hub import constants
    from transformers.utils import logging as hf_logging

    constants.HF_HUB_OFFLINE = before.offline
    if before.bars:
        hf_logging.enable_progress_bar()
    hf_logging.set_verbosity(before.level)
