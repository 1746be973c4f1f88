"""Models in the shapes of real ones, with random weights that are made on the device, and a tokenizer to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

LLAMA_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
}
QWEN3_600M = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}
# Weights so wide that attention is neither even nor a choice of one token: rounding then stays small.
SMALL: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "initializer_range": 0.06,
    "tie_word_embeddings": False,
}
NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def random_model(kind: str, shape: dict[str, Any], dtype: torch.dtype, device: torch.device, **changes: Any) -> Any:
    """A "llama" or "qwen3" with seeded random weights on `device`, in eval mode."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    config_class, model_class = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[
        kind
    ]
    torch.manual_seed(0)
    config = config_class(**{**shape, **NO_SPECIAL_TOKENS, **changes}, dtype=dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return model_class(config).eval()
    finally:
        torch.set_default_dtype(before)


def saved(model: Any, folder: Path) -> Path:
    """`folder` with the configuration and the weights of `model`; written once."""
    from yaie_engine.models.weights import offline_and_quiet

    if not (folder / "config.json").exists():
        with offline_and_quiet():
            model.save_pretrained(folder)
    return folder


def word_tokenizer(vocab_size: int) -> Any:
    """One word per id, so that every id has a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocab_size)}, unk_token="w3"))  # noqa: S106
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="w0", bos_token="w1", eos_token="w2")  # noqa: S106


def weight_bytes(model: Any) -> int:
    """Bytes of weights that one decode step reads: all but the rows of an input embedding that stands alone."""
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    total = sum(weight.numel() * weight.itemsize for weight in {id(p): p for p in model.parameters()}.values())
    return int(total if head is embedding else total - embedding.numel() * embedding.itemsize)
