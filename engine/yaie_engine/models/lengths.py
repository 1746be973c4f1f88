"""The longest sequence a model serves."""

from __future__ import annotations

from typing import Any

from yaie_engine.config import EngineConfig
from yaie_engine.errors import ConfigError

NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
WITHOUT_LIMIT = 4096


def choose_max_model_len(config: EngineConfig, model_config: Any) -> int:
    """The configured length, or the model's; 4,096 for a model that states none.

    Raises:
        ConfigError: the configured length is over the model's.
    """
    text = model_config.get_text_config()
    stated = next((value for name in NAMES if isinstance(value := getattr(text, name, None), int) and value > 0), None)
    if config.max_model_len is None:
        return stated or WITHOUT_LIMIT
    if stated is not None and config.max_model_len > stated:
        raise ConfigError(f"max_model_len={config.max_model_len} is over the {stated} positions of the model")
    return config.max_model_len
