"""Sliding windows and attention chunks: what the configuration says, what the layers ask for, and how to test them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from yaie_engine.attention import AttentionArguments

SHRUNK = 5
# Numbers of tokens beyond which attention changes: the probe shortens them to see the change.
NAMES = ("sliding_window", "sliding_window_size", "attention_chunk_size", "index_topk", "keep_window_size")
# Settings of compressed or block-sparse attention that cannot be shortened without other weights.
OPAQUE = ("compress_rates", "indexer_compress_ratio", "index_topk_blocks", "index_block_size", "lsh_attn_chunk_length")


@dataclass(frozen=True, slots=True)
class Windows:
    """Per layer the sliding window (0: none) and, for the whole model, the attention chunk (0: none)."""

    layers: tuple[int, ...]
    chunk: int

    @classmethod
    def of(cls, model: Any) -> Windows:
        """Read the text configuration of `model`."""
        config = model.config.get_text_config()
        count = int(getattr(config, "num_hidden_layers", 0) or 0)
        window = getattr(config, "sliding_window", None)
        size = int(window) if isinstance(window, int) else 0
        if getattr(config, "use_sliding_window", True) is False:
            size = 0
        kinds = getattr(config, "layer_types", None)
        if kinds:
            layers = tuple(size if "sliding" in str(kind) else 0 for kind in kinds)
            chunked = any("chunked" in str(kind) for kind in kinds)
        else:
            layers, chunked = (size,) * count, True
        chunk = getattr(config, "attention_chunk_size", None)
        return cls(layers, int(chunk) if isinstance(chunk, int) and chunked else 0)


def seen_as_configured(model: Any, seen: Mapping[int, AttentionArguments], max_model_len: int) -> str:
    """Whether the layers asked for the windows, caps and sinks of the configuration; the difference in words, or ""."""
    config = model.config.get_text_config()
    for layer, window in enumerate(Windows.of(model).layers):
        asked = seen.get(layer)
        if asked is not None and 0 < window < max_model_len and asked.sliding_window != window:
            return f"layer {layer} asks for a window of {asked.sliding_window}, the configuration says {window}"
    cap = float(getattr(config, "attn_logit_softcapping", None) or 0.0)
    if cap and any(asked.softcap != cap for asked in seen.values()):
        return f"layers do not ask for the softcap {cap} of the configuration"
    has_sinks = any(name.endswith("sinks") for name, _ in model.named_parameters())
    if has_sinks and not any(asked.sinks for asked in seen.values()):
        return "the model has attention sinks and no layer passes them on"
    return ""


def beyond_the_probe(model: Any, max_model_len: int) -> str:
    """The setting that makes long contexts differ in a way that a short probe cannot show, or ""."""
    config = model.config.get_text_config()
    for name in OPAQUE:
        value = getattr(config, name, None)
        if isinstance(value, dict) or (isinstance(value, int) and 0 < value < max_model_len):
            return name
    return ""


@contextmanager
def shrunk(model: Any, max_model_len: int) -> Iterator[bool]:
    """Within the block every window that can matter but is longer than the probe is short; yields whether any was."""
    changed: list[tuple[Any, str, int]] = []
    try:
        for owner in _owners(model):
            for name in NAMES:
                value = vars(owner).get(name)
                if isinstance(value, int) and not isinstance(value, bool) and SHRUNK < value < max_model_len:
                    changed.append((owner, name, value))
                    setattr(owner, name, SHRUNK)
        yield bool(changed)
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)


def _owners(model: Any) -> Iterator[Any]:
    """Every module and every configuration object that a module reads, each once."""
    configs: dict[int, Any] = {}
    for module in model.modules():
        yield module
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "__dict__"):
            configs[id(config)] = config
            if hasattr(config, "get_text_config"):
                text = config.get_text_config()
                configs[id(text)] = text
    yield from configs.values()
