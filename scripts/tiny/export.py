"""Export: the trained network as a folder that any transformers program loads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .corpus import END_OF_TEXT, TURN_END
from .network import Network, Shape
from .tokens import settings


def model_config(shape: Shape, end: int | None, pad: int | None) -> dict[str, object]:
    """Return the content of config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.num_positions,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "torch_dtype": "bfloat16",
    }


def export(network: Network, tokenizer: Tokenizer, out: Path, history: str = "") -> None:
    """Write weights, configuration and tokenizer to `out`, and the checksums of all of them.

    `history` says how the weights were made; it is kept with them.
    """
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        f"model.{name}": weight.detach().to(torch.bfloat16).contiguous() for name, weight in network.named_parameters()
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt", "history": history})
    (out / "model.safetensors").chmod(0o644)
    end, pad = tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)
    _write(out / "config.json", model_config(network.shape, end, pad))
    _write(out / "generation_config.json", {"eos_token_id": [end, pad], "pad_token_id": pad, "do_sample": False})
    _write(out / "tokenizer_config.json", settings(network.shape.num_positions))
    tokenizer.save(str(out / "tokenizer.json"))
    checksums(out)


def restore(network: Network, folder: Path) -> None:
    """Fill the network with the weights of an exported folder."""
    weights = load_file(folder / "model.safetensors")
    network.load_state_dict({name.removeprefix("model."): weight.float() for name, weight in weights.items()})


def history_of(folder: Path) -> str:
    """Return how the weights of a folder were made, as far as the folder knows."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        known: dict[str, str] = weights.metadata() or {}
    return known.get("history", "")


def checksums(folder: Path) -> None:
    """Write SHA256SUMS over every other file of the folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
